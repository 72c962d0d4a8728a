"""Puts the page of `mirrorla report` together and writes it as C.

    embed.py page.html STYLE... SCRIPT... report_page.c

`{{style}}` and `{{script}}` of page.html become the files that end in .css and .js, in their order; `{{data}}` is where the
program puts its JSON.
"""
import sys


def array(name, text):
    data = text.encode()
    lines = [', '.join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
    return (f'const unsigned char {name}[] = {{\n' + ',\n'.join(lines) + '};\n'
            f'const size_t {name}_bytes = sizeof {name};\n')


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main():
    page, *parts, out = sys.argv[1:]
    head, tail = (read(page)
                  .replace('{{style}}', '\n'.join(read(p) for p in parts if p.endswith('.css')))
                  .replace('{{script}}', '\n'.join(read(p) for p in parts if p.endswith('.js')).replace('</script', '<\\/script'))
                  .split('{{data}}'))
    with open(out, 'w', encoding='utf-8') as file:
        file.write('#include "train/report_data.h"\n' + array('mla_report_head', head) + array('mla_report_tail', tail))


main()

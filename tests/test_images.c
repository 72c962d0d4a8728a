/* Decoding, resizing and cropping against PIL's pixels (made by tests/data/make_images.py), and damaged files. */
#include "tests/data_support.h"
#include "train/image.h"

static mla_image decode_fixture(const char *name) {
    size_t bytes = 0;
    char *data = get_fixture(name, &bytes);
    mla_image image = {0};
    mla_error error = {0};
    expect_ok(mla_image_decode(&image, (const uint8_t *)data, bytes, name, &error), error);
    free(data);
    return image;
}

static void expect_pixels(const uint8_t *rgb, size_t count, const char *name, int tolerance) {
    size_t bytes = 0;
    uint8_t *expected = (uint8_t *)get_fixture(name, &bytes);
    ck_assert_uint_eq(bytes, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(abs(rgb[i] - expected[i]) <= tolerance, "%s: byte %zu is %d, expected %d", name, i, rgb[i],
                      expected[i]);
    free(expected);
}

/* JPEG may differ by a grey level between versions of the library. */
static const struct {
    const char *file, *pixels;
    int tolerance;
} decoded[] = {
    {"rgb420.jpg", "rgb420.rgb", 1},
    {"rgb444-progressive.jpg", "rgb444-progressive.rgb", 1},
    {"grey.jpg", "grey.rgb", 1},
    {"cmyk.jpg", "cmyk.rgb", 1},
    {"ycck.jpg", "ycck.rgb", 1},
    {"rgba.png", "rgba.rgb", 0},
    {"grey-alpha.png", "grey-alpha.rgb", 0},
    {"bilevel.png", "bilevel.rgb", 0},
    {"palette.png", "palette.rgb", 0},
    {"rgb16.png", "rgb16.rgb", 0},
    {"rgb16-interlaced.png", "rgb16-interlaced.rgb", 0},
    {"grey16.png", "grey16.rgb", 0},
    {"photo.png", "photo.rgb", 0},
};

START_TEST(decodes_as_pil) {
    mla_image image = decode_fixture(decoded[_i].file);
    expect_pixels(image.rgb, 3 * (size_t)image.width * (size_t)image.height, decoded[_i].pixels, decoded[_i].tolerance);
    mla_image_free(&image);
}
END_TEST

START_TEST(resizes_as_pil) {
    static const int sizes[][2] = {{24, 18}, {90, 71}, {57, 20}, {31, 43}, {1, 1}};
    mla_image photo = decode_fixture("photo.png");
    for (int method = MLA_BILINEAR; method <= MLA_BICUBIC; method++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            mla_image out = {0};
            mla_error error = {0};
            char name[64];
            expect_ok(mla_image_resize(&out, &photo, sizes[i][0], sizes[i][1], (mla_interpolation)method, &error), error);
            snprintf(name, sizeof name, "photo-%s-%dx%d.rgb", method == MLA_BILINEAR ? "bilinear" : "bicubic", sizes[i][0],
                     sizes[i][1]);
            expect_pixels(out.rgb, 3 * (size_t)out.width * (size_t)out.height, name, 0);
            mla_image_free(&out);
        }
    mla_image_free(&photo);
}
END_TEST

static void fit(uint8_t *rgb, const mla_image *image, const mla_data_config *config) {
    size_t plane = (size_t)config->size * (size_t)config->size;
    uint8_t *planes = malloc(3 * plane);
    mla_error error = {0};
    expect_ok(mla_image_fit(planes, image, config, &error), error);
    for (size_t i = 0; i < 3 * plane; i++) rgb[i] = planes[i % 3 * plane + i / 3];
    free(planes);
}

START_TEST(fits_as_torchvision) {
    uint8_t rgb[3 * 32 * 32];
    mla_image photo = decode_fixture("photo.png"), upright = {0};
    mla_data_config config = data_config(MLA_SET_IMAGE_FOLDER, "x");
    fit(rgb, &photo, &config);
    expect_pixels(rgb, sizeof rgb, "photo-fit-shorter.rgb", 0);
    config.resize = MLA_RESIZE_SQUASH;
    fit(rgb, &photo, &config);
    expect_pixels(rgb, sizeof rgb, "photo-fit-squash.rgb", 0);
    /* A square of the right size is left alone. */
    ck_assert(mla_image_create(&upright, 32, 32, "x", NULL) == MLA_OK);
    memcpy(upright.rgb, photo.rgb, sizeof rgb);
    fit(rgb, &upright, &config);
    ck_assert_mem_eq(rgb, photo.rgb, sizeof rgb);
    mla_image_free(&upright);
    mla_image_free(&photo);
}
END_TEST

START_TEST(writes_png) {
    mla_image photo = decode_fixture("photo.png"), back = {0};
    mla_error error = {0};
    expect_ok(mla_image_write_png(&photo, in_scratch("a b.png"), &error), error);
    expect_ok(mla_image_load(&back, in_scratch("a b.png"), &error), error);
    ck_assert_int_eq(back.width, photo.width);
    ck_assert_mem_eq(back.rgb, photo.rgb, 3 * (size_t)photo.width * (size_t)photo.height);
    mla_image_free(&photo);
    mla_image_free(&back);
}
END_TEST

/* ---- damaged files ---- */

static void refuse_bytes(const void *bytes, size_t count, const char *word) {
    mla_image image = {0};
    mla_error error = {0};
    /* exactly as long as the file, so that a sanitizer sees a read behind it */
    uint8_t *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    ck_assert(mla_image_decode(&image, copy, count, "dir/name.jpg", &error) != MLA_OK);
    ck_assert_ptr_null(image.rgb);
    expect_text(error.text, "dir/name.jpg");
    expect_text(error.text, word);
    free(copy);
}

START_TEST(refuses_other_types) {
    static const struct {
        const char *bytes;
        size_t count;
        const char *word;
    } cases[] = {
        {"", 0, "empty"},
        {"GIF89a..........", 16, "GIF"},
        {"BM..............", 16, "BMP"},
        {"RIFF....WEBPVP8 ", 16, "WebP"},
        {"II*\0............", 16, "TIFF"},
        {"<!DOCTYPE html>.", 16, "HTML"},
        {"\x1f\x8b..", 4, "gzip"},
        {"\xff", 1, "neither a JPEG nor a PNG"},
        {"hello", 5, "neither a JPEG nor a PNG"},
        {"\xff\xd8\xff", 3, "truncated"},
        {"\xff\xd8\xff\xd9", 4, "damaged JPEG"},
        {"\x89PNG\r\n\x1a\n", 8, "truncated"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuse_bytes(cases[i].bytes, cases[i].count, cases[i].word);
}
END_TEST

START_TEST(refuses_truncated) {
    static const char *const names[] = {"rgb420.jpg", "rgb444-progressive.jpg", "cmyk.jpg", "grey16.png", "photo.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes = 0;
        char *data = get_fixture(names[i], &bytes);
        refuse_bytes(data, bytes * 6 / 10, "truncated");
        free(data);
    }
}
END_TEST

/* Any prefix and any single changed byte is decoded or refused, never more. */
START_TEST(survives_damage) {
    size_t bytes = 0;
    char *data = get_fixture(decoded[_i].file, &bytes);
    for (size_t i = 0; i < bytes; i += 1 + bytes / 300) {
        mla_image image = {0};
        mla_error error = {0};
        if (mla_image_decode(&image, (const uint8_t *)data, i, "cut", &error) == MLA_OK) mla_image_free(&image);
        data[i] = (char)(data[i] ^ 0x41);
        if (mla_image_decode(&image, (const uint8_t *)data, bytes, "changed", &error) == MLA_OK) mla_image_free(&image);
        data[i] = (char)(data[i] ^ 0x41);
    }
    free(data);
}
END_TEST

START_TEST(refuses_huge) {
    size_t bytes = 0;
    char *data = get_fixture("rgb420.jpg", &bytes);
    for (size_t i = 0; i + 8 < bytes; i++)
        if ((uint8_t)data[i] == 0xff && (uint8_t)data[i + 1] == 0xc0) memset(data + i + 5, 0xfe, 4); /* 65278 x 65278 */
    refuse_bytes(data, bytes, "65278 x 65278");
    free(data);
}
END_TEST

/* Files of a few KB that would keep the program busy: see docs/fuzzing.md. */
START_TEST(refuses_endless_work) {
    size_t bytes = 0;
    char *data = get_fixture("../fuzz/corpus/jpeg/finding-many-scans.jpg", &bytes);
    refuse_bytes(data, bytes, "more than 100 scans");
    free(data);
    mla_image line = {0}, out = {0}; /* its rows would fit, the whole would not */
    mla_error error = {0};
    expect_ok(mla_image_create(&line, 1000, 1, "line", &error), error);
    ck_assert(mla_image_resize(&out, &line, MLA_MAX_PIXELS / 2, 3, MLA_BICUBIC, &error) == MLA_INVALID);
    expect_text(error.text, "expected 1 to");
    ck_assert_ptr_null(out.rgb);
    mla_image_free(&line);
}
END_TEST

START_TEST(refuses_bad_checksum) {
    size_t bytes = 0;
    char *data = get_fixture("photo.png", &bytes);
    data[bytes / 2] = (char)~data[bytes / 2];
    refuse_bytes(data, bytes, "damaged PNG");
    free(data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("images");
    int count = (int)(sizeof decoded / sizeof *decoded);
    TCase *loops = tcase_create("decoding");
    tcase_set_timeout(loops, 120);
    tcase_add_loop_test(loops, decodes_as_pil, 0, count);
    tcase_add_loop_test(loops, survives_damage, 0, count);
    suite_add_tcase(suite, loops);
    ADD_GROUP(suite, "geometry", resizes_as_pil, fits_as_torchvision, writes_png);
    ADD_GROUP(suite, "damage", refuses_other_types, refuses_truncated, refuses_huge, refuses_endless_work,
              refuses_bad_checksum);
    return run_suite(suite);
}

"""ONNX's own checker, with Debian's python3-onnx.

    python3 check_model.py FILE...            checks; every value must have the shape that shape inference finds
    python3 check_model.py --expose IN OUT    writes IN with further outputs: what the last attention map is made of
"""
import sys

import onnx


def shapes(values):
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def check(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    ours, theirs = shapes(model.graph.value_info), shapes(inferred.graph.value_info)
    made = {name for node in model.graph.node for name in node.output} - {v.name for v in model.graph.output}
    assert set(ours) == made, f'{path}: values without a shape, or shapes without a value: {set(ours) ^ made}'
    for name, shape in theirs.items():
        assert ours[name] == shape, f'{path}: {name} is said to be {ours[name]}, and is {shape}'
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names), f'{path}: names of nodes occur twice'
    assert shapes(model.graph.input)['image'][0] == 'batch' and shapes(model.graph.output)['logits'][0] == 'batch'
    assert (model.ir_version, [(o.domain, o.version) for o in model.opset_import]) == (8, [('', 17)])


def expose(source, target):
    """Softmax: the matrix as `share`; linear kinds: the features as `fq` (B, h, N, d) and `fk` (B, h, d, N).  All: what
    attention makes of its values, `mixed` and `values` (B, N, C)."""
    model = onnx.load(source)
    graph = model.graph
    maker = {name: node for node in graph.node for name in node.output}
    found = {}
    for node in graph.node:             # the last one stays
        if node.op_type == 'Softmax':
            found['share'] = node.output[0]
        if node.op_type == 'Div' and '.attn/' in node.name:
            over, under = (maker.get(name) for name in node.input)
            if over is not None and over.op_type == 'MatMul':
                found['fq'] = over.input[0]
                found['fk'] = maker[maker[over.input[1]].input[0]].input[0]
                assert maker[under.input[0]].input[0] == found['fq']
        if node.op_type == 'Split' and '.attn/' in node.name:
            found['values'] = node.output[-1]
        if node.op_type == 'MatMul' and '.attn.proj/' in node.name:
            found['mixed'] = node.input[0]
    info = {v.name: v for v in graph.value_info}
    for name, value in found.items():
        graph.node.append(onnx.helper.make_node('Identity', [value], [name]))
        exposed = graph.output.add()
        exposed.CopyFrom(info[value])
        exposed.name = name
    onnx.save(model, target)


if __name__ == '__main__':
    if sys.argv[1] == '--expose':
        expose(*sys.argv[2:])
    else:
        for file in sys.argv[1:]:
            check(file)

/* Kinds that are neither softmax over all pairs nor a quotient of sums: Efficient Attention, injective linear attention,
 * agent attention.  Each has its depthwise convolution of v from the layer, as the linear kinds do. */
#include <math.h>

#include "layers/attention_kinds.h"

/* ---- efficient (Shen et al., arXiv 1812.01243): q softened over the channels of a head, k over the tokens */

static void efficient_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    *fq = mla_channel_softmax(tape, mla_attention_third(layer, tape, qkv, 0), layer->heads);
    *fk = mla_token_softmax(tape, mla_attention_third(layer, tape, qkv, 1));
}

static mla_var efficient_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    mla_var fq, fk;
    efficient_features(layer, tape, qkv, &fq, &fk);
    return mla_state_attention(tape, fq, fk, mla_attention_third(layer, tape, qkv, 2), layer->heads, 1, false);
}

/* ---- inline (Han et al., arXiv 2412.06590): q and k as they are, which is the authors' choice of map */

static mla_var injective_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const double tokens = (double)(layer->side * layer->side), d = (double)(layer->channels / layer->heads);
    return mla_state_attention(tape, mla_attention_third(layer, tape, qkv, 0), mla_attention_third(layer, tape, qkv, 1),
                               mla_attention_third(layer, tape, qkv, 2), layer->heads, 1 / (tokens * sqrt(d)), true);
}

/* ---- agent (Han et al., arXiv 2312.08874), without its position biases: agents are means of q over the cells of a grid;
 * they read the tokens by softmax, and the tokens read them */

static mla_var agent_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const mla_var q = mla_attention_third(layer, tape, qkv, 0), k = mla_attention_third(layer, tape, qkv, 1);
    const mla_var v = mla_attention_third(layer, tape, qkv, 2);
    const mla_var agents = mla_grid_pool(tape, q, layer->side, (size_t)layer->spec.agent.side);
    return mla_softmax_attention(tape, q, agents, mla_softmax_attention(tape, agents, k, v, layer->heads), layer->heads);
}

const mla_attention_row mla_attention_efficient = {.linear = true, .core = efficient_core, .features = efficient_features};
const mla_attention_row mla_attention_inline = {.linear = true, .core = injective_core};
const mla_attention_row mla_attention_agent = {.linear = true, .core = agent_core};

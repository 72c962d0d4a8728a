/* vit: an isotropic vision transformer (Dosovitskiy et al., arXiv 2010.11929) with a token mean instead of a class token.
 * Its one stage stands at the top of the names, as in timm: patch_embed.proj.weight, pos_embed, blocks.0.norm1.weight. */
#include "layers/model.h"

static void prefix(char out[MLA_PARAM_NAME_BYTES], int stage) {
    (void)stage;
    out[0] = 0;
}

const mla_family_row mla_family_vit = {"vit", 1, false, prefix};

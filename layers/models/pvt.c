/* pvt: a pyramid (Wang et al., arXiv 2102.12122): each further stage halves the token grid with a 2 x 2 patch embedding,
 * which is followed by a LayerNorm.  Names: stages.0.patch_embed.proj.weight, stages.0.blocks.0.norm1.weight. */
#include <stdio.h>

#include "layers/model.h"

static void prefix(char out[MLA_PARAM_NAME_BYTES], int stage) { snprintf(out, MLA_PARAM_NAME_BYTES, "stages.%d.", stage); }

const mla_family_row mla_family_pvt = {"pvt", MLA_MAX_STAGES, true, prefix};

/* The operations that models are built from.
 *
 * Shapes: B images, N tokens, C channels, h heads, d = C / h.  Each function records one operation on the tape and
 * returns its result; formulas, gradients and sources stand in autograd/ops/<operation>.c and docs/math.md.  Inputs
 * marked "view" may be column ranges (mla_columns); all others are contiguous.  MLA_NO_VAR leaves an optional input out.
 */
#ifndef MLA_AUTOGRAD_OPS_H
#define MLA_AUTOGRAD_OPS_H

#include "autograd/tape.h"

typedef enum mla_activation { MLA_IDENTITY, MLA_GELU } mla_activation;
/* GIVEN: the identity, for features that other operations have made; they must not be negative. */
typedef enum mla_feature_map { MLA_FEATURE_RELU, MLA_FEATURE_ELU1, MLA_FEATURE_GIVEN } mla_feature_map;
/* What the feature map of the mirror keeps: relu(x); [relu(x), relu(-x)]; [relu(x), relu(y)]. */
typedef enum mla_feature_kept { MLA_KEPT_RELU, MLA_KEPT_SPLIT, MLA_KEPT_TWIN } mla_feature_kept;

/* y = x W^T + b + residual, or gelu(x W^T + b).  x (..., in) view, W (out, in) or (out, in / k, k ..) read as a matrix,
 * b (out) optional, residual (..., out) optional -> (..., out). */
mla_var mla_linear(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, mla_activation activation);

/* y = (x - mean) / sqrt(variance + eps) * gamma + beta over the last dimension.  x (..., C) -> (..., C). */
mla_var mla_layer_norm(mla_tape *tape, mla_var x, mla_var gamma, mla_var beta, double eps);

/* y = x Phi(x), exact.  x (...) -> (...). */
mla_var mla_gelu(mla_tape *tape, mla_var x);

/* y = x + scale_b f for image b.  x, f (B, ...) -> (B, ...); scale (B) or NULL for ones, kept by the caller until
 * backward is done (mla_tape_alloc). */
mla_var mla_residual(mla_tape *tape, mla_var x, mla_var f, const real *scale);

/* Stochastic depth (Huang et al., arXiv 1603.09382): y = x + f k_b / (1 - rate), k_b drawn once an image: 0 with
 * probability `rate`, else 1.  keep (B): uniform numbers on [0, 1), one an image, from the caller's random stream. */
mla_var mla_drop_path(mla_tape *tape, mla_var x, mla_var f, double rate, const double *uniform);

/* y = x + position.  x (B, N, C), position (1, N, C) -> (B, N, C). */
mla_var mla_position(mla_tape *tape, mla_var x, mla_var position);

/* Patches of planar images as rows.  x (B, c, S, S) -> (B, (S / p)^2, c p p), columns ordered (channel, row, column). */
mla_var mla_patches(mla_tape *tape, mla_var x, size_t patch);
/* The same from tokens on a grid.  x (B, side^2, C) -> (B, (side / p)^2, C p p), columns ordered (channel, row, column). */
mla_var mla_patches_grid(mla_tape *tape, mla_var x, size_t side, size_t patch);

/* y = residual + depthwise k x k convolution of x on the (height, width) token grid, zero padding, stride 1, as
 * torch.nn.Conv2d(C, C, k, padding=k // 2, groups=C).  x (B, N, C) view, weight (C, 1, k, k), bias (C), residual
 * (B, N, C) optional -> (B, N, C). */
mla_var mla_depthwise_conv(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, size_t height,
                           size_t width);

/* y = mean over tokens.  x (B, N, C) -> (B, C). */
mla_var mla_token_mean(mla_tape *tape, mla_var x);

/* y = softmax(q k^T / sqrt(d)) v per head, in tiles: no N x M memory.  q (B, N, C), k, v (B, M, C) views -> (B, N, C). */
mla_var mla_softmax_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads);

/* f(x) element by element.  x (...) view -> the same shape. */
mla_var mla_features(mla_tape *tape, mla_var x, mla_feature_map map);

/* Feature maps of kinds, all non-negative; x (B, N, h d) view. */

/* x / softplus(s).  x (..., C) view, s of C values -> (..., C).  Not a feature map yet, but what two of them begin with. */
mla_var mla_soft_scale(mla_tape *tape, mla_var x, mla_var s);
/* r^p |r| / |r^p| per head, r = relu(x) + 1e-6 -> (B, N, h d). */
mla_var mla_focused_features(mla_tape *tape, mla_var x, size_t heads, double power);
/* x+ = relu(x)^p, x- = relu(-x)^p, p = 1 + 4 sigmoid(s), s of h d values -> (B, N, 2 h 2d): heads in pairs, [x+, x-] twice,
 * or `crossed` [x+, x-] and [x-, x+].  For linear attention with 2 h heads, d / 2 wide. */
mla_var mla_polar_features(mla_tape *tape, mla_var x, mla_var s, size_t heads, bool crossed);
/* [relu(x) cos t_n, relu(x) sin t_n], t_n = pi n / (2 N), n = 1 .. N -> (B, N, h 2d). */
mla_var mla_cosine_features(mla_tape *tape, mla_var x, size_t heads);
/* (exp(x' w_j - |x'|^2 / 2 - M) + 1e-6) / sqrt(m), x' = x d^-1/4, w (m, d) without a gradient, M the largest x' w_j of the
 * token and head (query) or of all tokens of the image and head -> (B, N, h m). */
mla_var mla_positive_features(mla_tape *tape, mla_var x, mla_var w, size_t heads, bool query);

/* a b, element by element.  a, b (...) -> (...). */
mla_var mla_product(mla_tape *tape, mla_var a, mla_var b);

/* y_n = f(q_n) S / (f(q_n) . z + eps), S = mean_m f(k_m)^T v_m, z = mean_m f(k_m), per head.
 * q, k (B, N, h D), v (B, N, h d) views -> (B, N, h d); D = d but for MLA_FEATURE_GIVEN. */
mla_var mla_linear_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads, mla_feature_map map, double eps);

/* Softmax over the d channels of each head in every row.  x (B, N, C) view -> (B, N, C). */
mla_var mla_channel_softmax(mla_tape *tape, mla_var x, size_t heads);
/* Softmax over the tokens in every image and channel.  x (B, N, C) view -> (B, N, C). */
mla_var mla_token_softmax(mla_tape *tape, mla_var x);

/* Linear attention without a denominator, per head: y_n = factor fq_n sum_m fk_m^T v_m; or `centred`,
 * y_n = mean v + factor fq_n sum_m (fk_m - mean fk)^T v_m, means over the tokens.  fq, fk, v (B, N, C) views -> (B, N, C).
 */
mla_var mla_state_attention(mla_tape *tape, mla_var fq, mla_var fk, mla_var v, size_t heads, double factor, bool centred);

/* The mean of the tokens in each cell of an out x out grid laid over theirs, as torch's adaptive_avg_pool2d; out <= side.
 * x (B, side^2, C) view -> (B, out^2, C). */
mla_var mla_grid_pool(mla_tape *tape, mla_var x, size_t side, size_t out);

/* Products of reflections folded into a projection: for each head and block, rows of W become P^T rows with
 * P = H(v_1) ... H(v_r), for the q part (rows 0 .. C - 1) and the k part (C .. 2C - 1) alike; the rest is copied.
 * W (3C, K) or (3C), v (h, C / (h b), r, b) -> W's shape. */
mla_var mla_block_reflect(mla_tape *tape, mla_var weight, mla_var v);

/* Channel pairs (2i, 2i + 1) of q and k turn by t_i = T tanh(a_i (l_i - mean_j l_j) + c_i), l_i = log(s_i + floor), s_i
 * the variance of the pair over the tokens, mean over q and k, or with `own` angles q's for q and k's for k.
 * qk (B, N, 2C) view, a, c (C / 2) -> (B, N, 2C). */
#define MLA_VARIANCE_FLOOR 1e-6
mla_var mla_pair_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, double angle_max, bool own);

/* Two vectors a plane made orthonormal.  u, w (..., b), M planes -> (M, 2, b). */
mla_var mla_plane_basis(mla_tape *tape, mla_var u, mla_var w);
/* The angle above in learned planes, one a block of b channels, by the block's variance.  qk (B, N, 2C) view, a, c (M),
 * planes (M, 2, b) orthonormal, M b = C -> (B, N, 2C). */
mla_var mla_plane_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, mla_var planes, double angle_max, bool own);

/* y = x (s + floor)^-gamma, s the variance of the channel over the tokens, of q and of k.  qk (B, N, 2C) view, gamma (C) ->
 * (B, N, 2C). */
mla_var mla_scale_modulation(mla_tape *tape, mla_var qk, mla_var gamma);

/* Root-mean-square normalisation of each head of q and k (Zhang & Sennrich, arXiv 1910.07467), floor 1e-6 in the mean.
 * qk (B, N, 2C) view, gain (2, C) -> (B, N, 2C). */
mla_var mla_head_norm(mla_tape *tape, mla_var qk, mla_var gain, size_t heads);

/* x - 2 min(0, x . u) u for each block of q and k and its f vectors u = v / |v|, one after the other: the negative side of
 * each mirror is folded onto the positive one.  qk (B, N, 2C) view, v (h, C / (h b), f, b) -> (B, N, 2C). */
mla_var mla_fold_reflect(mla_tape *tape, mla_var qk, mla_var v);

/* Each block of q and k times its product H(v_1) ... H(v_r).  qk (B, N, 2C) view, v (h, C / (h b), r, b) -> (B, N, 2C). */
mla_var mla_block_turn(mla_tape *tape, mla_var qk, mla_var v);

/* Both halves of the channels times X = H(u_1) ... H(u_r) in R^C.  qk (B, N, 2C) view, u (r, C) -> (B, N, 2C). */
mla_var mla_cross_reflect(mla_tape *tape, mla_var qk, mla_var u);

/* In one pass over the tokens: pair_angle (a and c absent: none), cross_reflect (u absent: none), the features relu or
 * split, linear attention.  qkv (B, N, 3C) view, a, c (C / 2), u (r, C) -> (B, N, C).  C must fit the vectors of this
 * build. */
mla_var mla_mirror_attention(mla_tape *tape, mla_var qkv, mla_var a, mla_var c, mla_var u, size_t heads,
                             mla_feature_kept kept, double angle_max, double eps);
bool mla_mirror_attention_fits(size_t channels);

/* Features of the heads of q and k side by side: relu(x) (D = d), or [relu(x), relu(-x)], or [relu(x), relu(y)] (D = 2d)
 * with y given as `twin`, which else is MLA_NO_VAR.  qk, twin (B, N, 2C) views -> (B, N, 2 h D). */
mla_var mla_relu_features(mla_tape *tape, mla_var qk, mla_var twin, size_t heads, mla_feature_kept kept);

/* Features to a power: (f + 1e-6)^(1 + 4 sigmoid(p)) with p (h, 1, d), the same for q and k and both halves of D = 2d; or,
 * p being MLA_NO_VAR, f^exponent, exponent >= 1.  f (B, N, 2 h D) -> the same. */
mla_var mla_feature_power(mla_tape *tape, mla_var features, mla_var power, size_t heads, double exponent);

/* What ReLU cuts off, as a loss of each image: 1 - mean over q, k and heads of |relu(x)|^2 / (|x|^2 + 1e-6), the norms over
 * tokens and channels.  qk (B, N, 2C) view -> (B). */
mla_var mla_retention(mla_tape *tape, mla_var qk, size_t heads);

/* Loss of each image, -sum_k t_k log softmax(logits)_k with t = (1 - smoothing) target + smoothing / K.  logits (B, K),
 * labels (B) or, if NULL, soft targets (B, K); both kept by the caller until backward is done -> (B). */
mla_var mla_cross_entropy(mla_tape *tape, mla_var logits, const int *labels, const real *soft, double smoothing);
/* The same with target shares_b at labels_b and 1 - shares_b at others_b; all (B), kept by the caller likewise. */
mla_var mla_cross_entropy_mixed(mla_tape *tape, mla_var logits, const int *labels, const int *others, const real *shares,
                                double smoothing);

#endif

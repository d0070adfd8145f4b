// What a decoder consists of, as plain data: an architecture file fills this
// from config.json, and BuildDecoder turns it into a Model. Knows no tensors
// and no kernels. Sizes come validated (hf_config.h).
#ifndef INLAY_CORE_MODEL_DECODER_SPEC_H_
#define INLAY_CORE_MODEL_DECODER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/model/distance_spec.h"
#include "core/model/layer_spec.h"
#include "core/model/recurrent_spec.h"
#include "core/model/rope_scaling.h"
#include "kernels/activation/activation.h"
#include "kernels/activation/xielu.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/moe/routing.h"
#include "kernels/rope/rope.h"

namespace inlay {

// What selects the blocks of keys that a layer's queries see, in networks that
// were trained for it (kernels/indexer/block_indexer.h): each KV head has a
// query of its own here, and one key a token is for all. Norms are of heads;
// rotated are as many of a head's first dimensions as the layer rotates.
struct BlockIndexSpec {
  int head_dim = 0;
  int block = 0;       // keys; a power of two
  int selects = 0;     // blocks, at most
  int neighbours = 1;  // of those, the query's own and those before it
  LinearSpec query;
  LinearSpec key;
  NormSpec query_norm;
  NormSpec key_norm;
};

struct AttentionSpec {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // > 0: of a head's values, where they are narrower than its keys; the layers
  // are as wide as that. Without gates, norms of v, clip and kv_source.
  int value_dim = 0;
  // q, k and v, or one layer that gives all three side by side.
  std::vector<LinearSpec> qkv;
  LinearSpec output;
  NormSpec q_norm;  // of each head, before rope; need separate q, k and v
  NormSpec k_norm;
  bool joint_norms = false;       // of all heads of a token as one row instead
  bool norms_after_rope = false;  // of q and k
  NormSpec v_norm;                // of each head; needs separate q, k and v
  // `qkv` has no layer of v: values are what the layer of k gives, through
  // v_norm.
  bool keys_as_values = false;
  // Which part with attention this one reads the keys and values of, counted
  // over those with KV of their own, from 0; `qkv` is q alone and there are no
  // norms of k and v. -1: it has its own.
  int kv_source = -1;
  int rope = -1;  // index into DecoderSpec::ropes; -1: no rotation
  RopeStyle rope_style = RopeStyle::kHalf;
  // > 0: q, k and v beyond +-clip are cut off, after their norms and before
  // rope; not with norms_after_rope.
  float clip = 0.0f;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  // > 0: a query sees the keys of so many positions, its own included; 0: all.
  // Where not causal, so many both ways.
  int window = 0;
  bool causal = true;  // false: what is after a token is seen, too
  // > 0: a query sees the keys of its own chunk of so many positions only.
  int chunk = 0;
  // Index into DecoderSpec::ropes of a RopeScaling::kFactor that multiplies q;
  // -1: none.
  int query_factor = -1;
  // The first of qkv gives each head's query and a gate beside it, whose
  // function multiplies what the head gives; needs separate q, k and v.
  bool gated = false;
  // Of gated: the gate is a layer of its own, the second of qkv.
  bool gate_apart = false;
  GateFunction gate = GateFunction::kSigmoid;
  bool head_gates = false;  // of gate_apart: one for all of a head
  // Of all heads' queries, after rope; of the gates of gate_apart, before their
  // function.
  ChannelSpec query_channels;
  ChannelSpec gate_channels;
  float context_scale = 1.0f;  // of what attention gives
  NormSpec output_norm;        // of all of it, before the output
  // Tensor [num_heads] of logits that take part in the softmax and stand for no
  // key (gpt-oss); "": none.
  std::string sinks;
  // ALiBi with FillAlibiSlopes() times this, for scores that are scaled; 0:
  // none.
  float alibi_scale = 0.0f;
  // Instead of ALiBi.
  std::optional<DistanceBiasSpec> distance_bias;
  // Instead of both; q, k and v are layers of their own, every head has keys of
  // its own, and neither is rotated.
  std::optional<RelativePositionsSpec> relative;
  // Causal, without window, chunks, biases and kv_source.
  std::optional<BlockIndexSpec> block_index;
};

// What makes one key of several tokens' (kv_compress): each token gives values
// and gates, twice over where it overlaps.
struct CompressorSpec {
  int head_dim = 0;
  int row_tokens = 0;
  bool overlaps = false;
  LinearSpec values;
  LinearSpec gates;
  std::string bias;  // tensor [row_tokens, as many as values]
  // Of a token's values; not where it overlaps.
  NormSpec value_norm;
  NormSpec norm;  // of a key, or none; then its last dimensions are rotated

  int num_heads() const { return overlaps ? 2 : 1; }
};

// The lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2,
// arXiv:2512.02556): a query sees the keys that score highest in a small
// attention beside its layer's. Each head's first dimensions are rotated, as
// many as the layer's. Queries are made of the layer's of low rank or, where
// there is a query_norm, of what the layer reads, through that.
struct IndexerSpec {
  int num_heads = 0;
  int head_dim = 0;
  int64_t max_keys = 0;  // of a sequence
  RopeStyle rope_style = RopeStyle::kHalf;
  bool rotates_last = false;  // dimensions, not the first
  NormSpec query_norm;
  LinearSpec query;        // all heads
  std::string head_scale;  // LatentAttentionSpec
  LinearSpec key;          // one a token for all heads
  NormSpec key_norm;
  // Instead of both: keys are of several tokens each, neither they nor queries
  // are rotated, and whole ones' tokens are seen or not (GLM-5.3).
  std::optional<CompressorSpec> compressor;
  LinearSpec weights;  // of heads
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values
// of all heads are made of one latent a token, and that is what the cache
// keeps, with the part of the keys that is rotated and that all heads share.
struct LatentAttentionSpec {
  int num_heads = 0;
  int rank = 0;      // of the latent
  int key_dim = 0;   // of a head's queries and keys, without the rotated part
  int rope_dim = 0;  // of the rotated part, which comes after it; may be 0
  int value_dim = 0;
  // Each head's queries; or of low rank: layer 1 reads what layer 0 gives,
  // normalised.
  std::vector<LinearSpec> query;
  NormSpec query_norm;
  LinearSpec down;  // the latent and the keys' rotated part
  NormSpec norm;    // of the latent
  LinearSpec up;    // of the latent; head by head its keys and its values
  // What files may have instead (GGUF's do): each head's keys turned, `rank`
  // rows of `key_dim`, and its values.
  LinearSpec up_keys;
  LinearSpec up_values;
  // Of what the part reads: its sigmoids multiply what heads give, one for all
  // of a head (Ling 3) or, where it is as wide as all of it, for each element.
  std::optional<LinearSpec> gate;
  // Layer 1 of `query` and the gate read the norm's output and, behind it, what
  // goes into that (A.X-K2); the indexer the first alone.
  bool reads_both = false;
  std::string sinks;  // AttentionSpec
  LinearSpec output;
  int rope = -1;  // index into DecoderSpec::ropes; -1: no rotation
  RopeStyle rope_style = RopeStyle::kInterleaved;
  int query_factor = -1;  // AttentionSpec
  // Tensors NAME.s and NAME.b, [num_heads]: the scale and the bias by which
  // head_scale multiplies queries; "": none.
  std::string head_scale;
  float scale = 1.0f;
  // The layer of ModelInfo::kv_layers whose rows are read, and none written:
  // there are no `down` and `norm`. -1: it has its own.
  int kv_source = -1;
  // > 0: a query sees so many keys at most, those that `indexer` selects or,
  // without one, those that the last layer with one before this has selected.
  // Equal in all layers that select.
  int selects = 0;
  // Keys are selected in blocks of so many, the query's own unfinished one
  // always (KeyMix::own_if_partial); it divides `selects`.
  int select_block = 1;
  std::optional<IndexerSpec> indexer;

  int query_dim() const { return key_dim + rope_dim; }  // of a head
  int row_dim() const { return rank + rope_dim; }       // in the cache
  // Numbers that a selection has for a token.
  int selection_width() const { return selects / select_block; }
};

// What selects compressed keys: it has keys of its own, compressed alike.
struct CompressedIndexSpec {
  int num_heads = 0;
  int64_t max_keys = 0;  // of a sequence
  CompressorSpec compressor;
  LinearSpec query;  // of the queries of low rank; all heads
  LinearSpec weights;
};

// Attention over compressed keys (DeepSeek-V4): queries of low rank, one key a
// token for all heads that is its value too; a query sees those in a window
// and, in one softmax with these, keys that `compressor` makes of several
// tokens each. The last rope_dim dimensions of queries and keys are rotated,
// and what heads give is rotated back.
struct CompressedAttentionSpec {
  int num_heads = 0;
  int head_dim = 0;
  int rope_dim = 0;
  int window = 0;
  LinearSpec low_query;
  NormSpec low_query_norm;
  LinearSpec query;
  NormSpec query_norm;  // of each head
  LinearSpec key;
  NormSpec key_norm;
  // Indices into DecoderSpec::ropes: of queries and keys; the way back; of
  // compressed keys, whose positions are those of their first tokens.
  int rope = 0;
  int rope_back = 0;
  int compressed_rope = -1;
  float scale = 1.0f;
  std::string sinks;  // AttentionSpec
  // The first of the output's two layers is one for each group of heads, whose
  // outputs side by side the second reads.
  std::vector<LinearSpec> group_outputs;
  LinearSpec output;

  std::optional<CompressorSpec> compressor;
  int most = 0;  // compressed keys that a query sees, at most
  std::optional<CompressedIndexSpec> index;
};

// xIELU's numbers as files have them: what softplus makes alpha_p of, and what
// alpha_n is besides beta.
struct XieluSpec {
  // Tensors NAME.alpha_p, .alpha_n, .beta and .eps, of one element; "": the
  // numbers below.
  std::string name;
  XieluNumbers stored;
};

struct MlpSpec {
  int64_t width = 0;
  Activation activation = Activation::kSilu;
  std::optional<XieluSpec> xielu;  // instead of it; not gated
  bool gated = false;
  float limit = 0.0f;  // ActivationDesc::limit
  // Of gates before the activation: sparse_gate's deviations. With `gated`.
  std::optional<float> gate_cut;
  float gate_scale = 1.0f;    // of the gate before the activation
  ChannelSpec gate_channels;  // likewise, with up_channels
  ChannelSpec up_channels;    // of what is beside it
  float inner_scale = 1.0f;   // of what comes after it
  NormSpec inner_norm;        // of that, before the output
  // Gate and up, or one layer that gives both side by side (gate first), or the
  // only one of an MLP without gate.
  std::vector<LinearSpec> input;
  LinearSpec output;
};

// An MLP that reads a token's row mixed with the one before it (RWKV's channel
// mix). Tensor MIX [hidden].
struct ShiftedMlpSpec {
  std::string mix;
  MlpSpec mlp;
};

// The sum over the experts that the router chooses for a token of weight *
// expert(x), and of a shared expert's, which every token goes to.
struct MoeSpec {
  // Of more experts than `experts` has, those beyond give back what they read
  // (LongCat-Flash's zero-computation experts). These have no latents.
  RoutingDesc routing;
  LinearSpec router;       // a logit an expert
  std::string correction;  // tensor [num_experts], RoutingParams; "": none
  // Tensor [vocab_size, top_k] of integers, RoutingParams::table, where
  // routing.hashed.
  std::string table;
  int64_t table_rows = 0;
  // Of the residual stream, for the router alone; of kind kNone: it reads what
  // experts read.
  NormSpec router_norm;
  // The router reads the residual stream as it was before the layer's first
  // block (SmallThinker), without a norm. In layers that are not parallel, of
  // one residual stream.
  bool routes_ahead = false;
  float router_scale = 1.0f;    // of the logits
  float router_softcap = 0.0f;  // of the scaled logits; 0: none
  // Tensor [num_experts], RoutingParams, where routing.scales_experts.
  std::string expert_scales;
  // Experts read what the one gives of what the router reads, and the other
  // reads their weighted sum (Nemotron 3 Super); the shared one does neither.
  // Without shared_gate.
  std::optional<LinearSpec> latent_down;
  std::optional<LinearSpec> latent_up;
  // One an expert, alike but for the names; inputs gate and up, or up alone.
  std::vector<MlpSpec> experts;
  std::optional<MlpSpec> shared;
  // One output, whose sigmoid multiplies the shared part.
  std::optional<LinearSpec> shared_gate;
  // Tensor [hidden] that is added to the sum; "": none. Without a shared expert
  // and latents.
  std::string bias;
  // Index into DecoderSpec::ropes of a RopeScaling::kFactor of 1: weights
  // multiply what the expert reads, not what it gives; one expert a token, no
  // biases. -1: they multiply what it gives.
  int input_weights = -1;
};

// An MLP and a mixture of experts over one input, each between norms of its
// own; their outputs are added (Gemma 4). In blocks with a post_norm and no
// pre_norm.
struct MlpMoeSpec {
  NormSpec mlp_pre_norm;
  NormSpec mlp_post_norm;
  MlpSpec mlp;
  NormSpec moe_pre_norm;
  NormSpec moe_post_norm;
  MoeSpec moe;
};

// y = output(f(gate(x)) * slice `index` of the per-layer inputs).
struct PerLayerSpec {
  int index = 0;
  int64_t width = 0;
  Activation activation = Activation::kGeluTanh;
  LinearSpec gate;
  LinearSpec output;
};

// Both read the same input, their outputs are added (Falcon H1).
struct AttentionMambaSpec {
  AttentionSpec attention;
  MambaSpec mamba;
};

// output(mlp(attention(norm of the residual stream and the embedding side by
// side))), the MLP behind a norm of its own and without sums (Zamba 2).
struct SharedTransformerSpec {
  std::string embedding;  // tensor [vocab_size, hidden_size]
  int64_t vocab_size = 0;
  NormSpec norm;  // twice as wide as the stream
  AttentionSpec attention;
  NormSpec mlp_norm;
  Activation activation = Activation::kGelu;
  // Gate and up side by side, to which high(low) of the same is added.
  LinearSpec gate_up;
  LinearSpec low;
  LinearSpec high;
  LinearSpec down;
  LinearSpec output;
};

// A mixture of attention heads (JetMoE, arXiv:2404.07413): the experts that the
// router chooses make a token's queries, as many heads each as there are of
// keys, and read what these give; their outputs are weighed and added up.
struct AttentionExpertsSpec {
  int num_kv_heads = 0;
  int head_dim = 0;
  RoutingDesc routing;
  LinearSpec router;     // a logit an expert
  LinearSpec key_value;  // keys and values of all tokens, side by side
  std::vector<LinearSpec> queries;  // one an expert, as are the outputs
  std::vector<LinearSpec> outputs;
  std::string bias;  // tensor [hidden] that is added to the sum
  int rope = 0;      // index into DecoderSpec::ropes
  float scale = 1.0f;
};

using PartSpec = std::variant<
    AttentionSpec, MlpSpec, MoeSpec, ShortConvSpec, MambaSpec, SelectiveSpec,
    DeltaSpec, LightningSpec, TimeMixSpec, ShiftedMlpSpec, LruSpec,
    AttentionMambaSpec, LatentAttentionSpec, MlpMoeSpec, PerLayerSpec,
    CompressedAttentionSpec, SharedTransformerSpec, AttentionExpertsSpec>;

// A learned augmented residual (LAuReL, arXiv:2411.07501): a block's sum has n
// + norm(right(left(n))) besides, n being what its part reads, and is
// multiplied by `factor`.
struct LaurelSpec {
  LinearSpec left;
  LinearSpec right;
  NormSpec norm;
  float factor = 1.0f;
};

// What a block's part reads is its norm's output n times sigmoid(high(silu(low(
// n)))) (A.X-K2).
struct InputGateSpec {
  LinearSpec low;
  LinearSpec high;
};

// h = sum_norm(stream_norm(h) + scale * post_norm(part(pre_norm(h)))), norms of
// kind kNone left out.
struct BlockSpec {
  NormSpec pre_norm;
  NormSpec post_norm;
  NormSpec stream_norm;  // nGPT's; with a post_norm
  NormSpec sum_norm;     // BERT's
  // post_norm is of h + what the part gives (JinaBERT's for code); without
  // stream_norm and scale.
  bool post_norm_of_sum = false;
  float scale = 1.0f;
  // Of DecoderSpec::streams: tensors HYPER_fn, HYPER_base and HYPER_scale, all
  // float32. There is no post_norm, sum_norm and scale then.
  std::string hyper;
  // With pre_norm and post_norm, without scale and sum_norm.
  std::optional<LaurelSpec> laurel;
  // With a pre_norm of the block's own, without laurel; in no chains.
  std::optional<InputGateSpec> input_gate;
  // What the part gives is added when all blocks of the layer have run
  // (LongCat-Flash's shortcut). One block of a layer, and not its last; without
  // post_norm, sum_norm and scale, in layers that are not parallel, of one
  // residual stream.
  bool deferred = false;
  // What the part gives is added to what the layer's next block reads, and to
  // nothing else (Zamba 2). As deferred, and not beside it.
  bool aside = false;
  PartSpec part;
};

struct LayerSpec {
  // One after another; or in parallel, where all read the layer's input and
  // their outputs are added to it. Those have no other norms and no scales.
  std::vector<BlockSpec> blocks;
  bool parallel = false;
  // Of parallel blocks that share one norm and have none of their own.
  NormSpec pre_norm;
  // Tensor [1] that multiplies the residual stream after the blocks; "": none.
  std::string scale;
  // Before its blocks the stream becomes loop_norm(stream) + kept (Dory's loops
  // of layers); `begins_loop`: what is kept is that norm's output here, until a
  // layer that begins one again.
  NormSpec loop_norm;
  bool begins_loop = false;
  // Of DecoderSpec::altup: tensors ALTUPmodality_router.weight and so on. The
  // blocks read and write the active stream, but for the last one, which has a
  // post_norm: it reads that as it is corrected and scaled, and what it gives
  // is added to all streams but the first. Not parallel, no scale.
  std::string altup;
};

// What PerLayerSpec reads: of each token, for each layer a slice of `width`:
// scale * (table[id] * table_scale + norm(projection(embedding))), the norm of
// each slice (Gemma 3n's and 4's per-layer embeddings).
struct PerLayerInputsSpec {
  std::string table;  // tensor [rows, num_slices * width]
  int64_t rows = 0;   // ids beyond them read the first
  int num_slices = 0;
  int64_t width = 0;
  float table_scale = 1.0f;
  float scale = 1.0f;
  LinearSpec projection;
  NormSpec norm;

  int64_t all() const { return num_slices * width; }
};

// A residual stream that is several (kernels/hyper_connection): every block
// reads what its hyper-connection mixes of them and gives its output back to
// all. They begin as the embedding each.
struct StreamsSpec {
  int count = 0;
  int rounds = 0;
  float epsilon = 0.0f;
  float norm_epsilon = 0.0f;
  // As BlockSpec::hyper: what the final norm reads; "": the mean of all.
  std::string head;
  float magnitude = 2.0f;    // HyperMixDesc
  bool independent = false;  // the same
};

// A residual stream that is several, of which layers read and write one, the
// active one (AltUp, kernels/altup). The first begins as the embedding, the
// others as projections of it; what the final norm reads is the sum of the
// first and of projections of the others, all as large as the first.
struct AltUpSpec {
  int count = 0;
  int active = 0;
  float norm_epsilon = 0.0f;  // of routers
  bool scales = false;        // what layers' last blocks read
  float magnitude_epsilon = 0.0f;
  std::vector<LinearSpec> projections;   // [count - 1]
  std::vector<LinearSpec> unembeddings;  // [count - 1]
};

// y = norm(f(linear(x))) of one row, f being tanh or an activation.
struct HeadLayerSpec {
  LinearSpec linear;
  bool tanh = false;
  std::optional<Activation> activation;  // not with tanh
  NormSpec norm;
};

// What an encoder's head makes of a hidden state: a logit a label.
struct ClassifierSpec {
  std::vector<HeadLayerSpec> layers;
  LinearSpec output;     // of what the last of them gives
  bool of_mean = false;  // of the tokens' states; false: the first token's
};

// An embedding of another width than the residual stream (OPT-350m): `input`
// makes the stream's of it, before positions are added, and `output` what the
// head reads; or (ELECTRA) after positions, segments and the embedding's norm,
// which are as narrow, in encoders. At most as wide as the stream.
struct EmbeddingProjectionSpec {
  LinearSpec input;
  LinearSpec output;  // of no encoder
  bool comes_last = false;

  int64_t width() const { return input.k; }
};

struct DecoderSpec {
  // Files saved from the bare network lack it: see WeightLoader.
  std::string optional_prefix;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;
  std::string embedding;  // tensor [vocab_size, hidden_size]
  // > 0: the embedding has so many rows, more than there are tokens. Not where
  // it is the head.
  int64_t embedding_rows = 0;
  // Then the embedding and the head are [vocab_size, width()].
  std::optional<EmbeddingProjectionSpec> embedding_projection;
  // Tensor [position_offset + max_positions, hidden_size], or "".
  std::string position_embedding;
  int64_t position_offset = 0;  // rows before that of position 0
  // Tensor [num_segments, hidden_size] of which the row of a token's segment
  // is added to the token's own, or "".
  std::string segment_embedding;
  int64_t num_segments = 0;
  // Tensor [num_tasks, hidden_size] whose first row is added to every token's
  // (ERNIE), or "".
  std::string task_embedding;
  int64_t num_tasks = 0;
  NormSpec embedding_norm;
  float embedding_scale = 1.0f;
  std::optional<PerLayerInputsSpec> per_layer_inputs;
  std::optional<StreamsSpec> streams;  // not with parallel blocks
  std::optional<AltUpSpec> altup;      // not with streams
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  // Layers name the same tensors (ALBERT): each is loaded once.
  bool shares_layers = false;
  NormSpec final_norm;
  // There is none: states are all that it gives.
  bool headless = false;
  // Sequences are computed whole, and for their hidden states: there is no
  // head but `classifier`.
  bool is_encoder = false;
  std::optional<ClassifierSpec> classifier;
  // What makes an embedding of the pooled states; empty: they are it.
  std::vector<HeadLayerSpec> pooled;
  std::string head;  // NAME.weight [vocab_size, hidden_size]; "": tied
  // Of a tied head: its NAME in files that store it all the same. One that
  // differs from the embedding is used; without an embedding it is that, too.
  std::string tied_head;
  bool head_bias = false;  // NAME.bias, of the tied head's NAME, too
  std::string tied_bias;   // what became of that where there is no `head`
  // What the head reads of the last norm's output; empty: that. Without
  // embedding_projection.
  std::vector<HeadLayerSpec> head_layers;
  ChannelSpec logit_channels;  // of each token's logits, first
  float logit_scale = 1.0f;    // multiplies the logits, before the softcap
  float final_softcap = 0.0f;  // 0: none
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DECODER_SPEC_H_

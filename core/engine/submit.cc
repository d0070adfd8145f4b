// ModelRunner::Submit: from what the host asked to a request the scheduler
// holds.
#include <algorithm>
#include <new>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "core/engine/clock.h"
#include "core/engine/model_runner.h"
#include "memory/formatted_string.h"
#include "memory/status.h"
#include "sched/policy.h"

namespace inlay {
namespace {

// How many tokens of the prompt's end the text decoder sees before the first
// generated one: enough for a character cut by the prompt's end (4 bytes) and
// for the joining rules of every decoder.
constexpr size_t kDecodeContext = 16;

size_t CommonPrefix(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

absl::Status CheckTokens(const std::vector<int32_t>& tokens, int64_t vocab,
                         const char* what) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return absl::InvalidArgumentError(FormattedString(
          "%s[%d] is %d, allowed: 0 to %d", what, i, tokens[i], vocab - 1));
    }
  }
  return absl::OkStatus();
}

// Keys of hosts are told from sessions' ids by their highest bit.
constexpr uint64_t kNamedShare = uint64_t{1} << 63;
constexpr uint64_t kMostDeadlineUs = uint64_t{1} << 60;

// Shows the sampler the log that the request starts from: all of it is prompt,
// but for what the generation that it resumes had chosen.
void Observe(const RequestOptions& options, const Session& session,
             absl::Span<const int32_t> log, Sampler* sampler) {
  if (!options.resume) return sampler->ObservePrompt(log);
  const SamplerMark& mark = session.mark;
  const auto begin = static_cast<size_t>(std::min<int64_t>(
      mark.generated_begin, static_cast<int64_t>(log.size())));
  sampler->ObservePrompt(log.first(begin));
  for (const int32_t token : log.subspan(begin)) sampler->Observe(token);
  sampler->set_state({mark.seed, mark.num_draws});
}

// What the tokenizer gave up, with the reason in the host's words.
absl::Status NamesContext(const absl::Status& encoded, int64_t max_context) {
  if (!absl::IsOutOfRange(encoded)) return encoded;
  return absl::InvalidArgumentError(
      FormattedString("the prompt's text alone has more than %d tokens, all "
                      "that the context takes, generated ones included",
                      max_context));
}

// Logits handed to the host stay in memory until it takes them.
constexpr int64_t kMaxLogitsBytes = int64_t{1} << 30;

// The first position that must be computed by this request, cached or not: the
// last token's, whose logits choose the next, or an earlier one whose logits
// the host wants to see. `total`: tokens of prompt and log, > 0.
absl::StatusOr<int64_t> FirstWanted(const RequestOptions& options,
                                    int64_t prompt_begin, int64_t total) {
  int64_t first = total - 1;
  if (options.score_prompt) {
    first = std::min(first, std::max<int64_t>(0, prompt_begin - 1));
  }
  if (options.logits != LogitsMode::kPositions) return first;
  for (const int64_t position : options.logits_positions) {
    if (position < 0 || position >= total) {
      return absl::InvalidArgumentError(FormattedString(
          "logits_positions has %d, allowed: 0 to %d", position, total - 1));
    }
    first = std::min(first, position);
  }
  return first;
}

// Positions whose logits a request may ask for.
int64_t MaxLogitsRows(int64_t vocab) {
  return kMaxLogitsBytes / (vocab * static_cast<int64_t>(sizeof(float)));
}

// `generated`: tokens at most.
absl::Status CheckLogitsBytes(const RequestOptions& options, int64_t total,
                              int64_t generated, int64_t vocab) {
  const int64_t rows =
      options.logits == LogitsMode::kAll         ? total
      : options.logits == LogitsMode::kGenerated ? generated
      : options.logits == LogitsMode::kPositions
          ? static_cast<int64_t>(options.logits_positions.size())
          : 0;
  const auto row_bytes = vocab * static_cast<int64_t>(sizeof(float));
  if (rows <= MaxLogitsRows(vocab)) return absl::OkStatus();
  return absl::ResourceExhaustedError(FormattedString(
      "logits of %d positions are asked for, %d bytes each; a request gets at "
      "most %d bytes: ask for fewer positions, or for scores",
      rows, row_bytes, kMaxLogitsBytes));
}

}  // namespace

absl::Status ModelRunner::Tokenize(RequestOptions& options,
                                   bool session_is_empty) const {
  if (options.input == InputKind::kTokens) return absl::OkStatus();
  if (options.is_pair && !loaded_->info.is_encoder) {
    return absl::InvalidArgumentError(FormattedString(
        "text_pair is set, and the model is no encoder (%s): pairs of texts "
        "are for those",
        loaded_->info.architecture));
  }
  INLAY_ASSIGN_OR_RETURN(const Tokenizer* tokenizer,
                         loaded_->RequireTokenizer());
  if (options.is_pair) return TokenizePair(*tokenizer, options);
  EncodeOptions encode;
  encode.parse_special = options.parse_special;
  if (options.input == InputKind::kChat) {
    INLAY_ASSIGN_OR_RETURN(options.text, RenderChat(loaded_.get(), options.text,
                                                    options.prompt_for_answer));
    options.mode = InputMode::kReplace;
    // The template writes the special tokens itself.
    encode.add_special = false;
    encode.parse_special = encode.parse_control = true;
  } else {
    encode.add_special =
        options.add_special &&
        (session_is_empty || options.mode == InputMode::kReplace);
  }
  options.tokens.clear();
  encode.max_ids = static_cast<size_t>(loaded_->max_context);
  return NamesContext(tokenizer->Encode(options.text, encode, &options.tokens),
                      loaded_->max_context);
}

absl::Status ModelRunner::TokenizePair(const Tokenizer& tokenizer,
                                       RequestOptions& options) const {
  options.mode = InputMode::kReplace;
  options.tokens.clear();
  options.token_types.clear();
  EncodeOptions encode;
  encode.add_special = options.add_special;
  encode.parse_special = options.parse_special;
  encode.max_ids = static_cast<size_t>(loaded_->max_context);
  INLAY_RETURN_IF_ERROR(
      NamesContext(tokenizer.EncodePair(options.text, options.text_pair, encode,
                                        &options.tokens, &options.token_types),
                   loaded_->max_context));
  options.text_pair = std::string();
  // RoBERTa's files may name types that the network has no rows for.
  if (loaded_->info.num_segments <= 1) options.token_types.clear();
  return absl::OkStatus();
}

absl::Status ModelRunner::CheckTypes(const RequestOptions& options) const {
  if (options.token_types.empty()) return absl::OkStatus();
  const int64_t segments = std::max<int64_t>(1, loaded_->info.num_segments);
  for (size_t i = 0; i < options.token_types.size(); ++i) {
    const int32_t type = options.token_types[i];
    if (type >= 0 && type < segments) continue;
    return absl::InvalidArgumentError(
        FormattedString("token_types[%d] is %d, allowed for this model: 0 to "
                        "%d",
                        i, type, segments - 1));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::ChooseActivation(RequestOptions& options) const {
  if (!options.classifies) return absl::OkStatus();
  if (loaded_->info.num_labels == 0) {
    return absl::InvalidArgumentError(FormattedString(
        "classification is set, and the model has no classification head "
        "(%s); those named ..ForSequenceClassification have one",
        loaded_->info.architecture));
  }
  if (!options.classification_defaults) return absl::OkStatus();
  const ClassificationDefaults& defaults = loaded_->classification;
  if (!defaults.unsupported.empty()) {
    return absl::UnimplementedError(FormattedString(
        "the model's scores need %s, which is not supported; set "
        "classification to logits, sigmoid or softmax",
        defaults.unsupported));
  }
  options.activation = defaults.activation;
  return absl::OkStatus();
}

// What the model's files say of embeddings, and what they leave open.
absl::Status ModelRunner::ChoosePooling(RequestOptions& options) const {
  if (!options.embedding_defaults) return absl::OkStatus();
  const EmbeddingDefaults& defaults = loaded_->embedding;
  if (!defaults.unsupported.empty()) {
    return absl::UnimplementedError(FormattedString(
        "the model's embeddings need %s, which is not supported; set "
        "embedding to mean, cls or last for another",
        defaults.unsupported));
  }
  options.pooling = defaults.pooling;
  options.projects = !defaults.dense.empty();
  options.normalise = defaults.normalise;
  if (options.pooling == Pooling::kNone) {
    options.pooling =
        loaded_->info.is_encoder ? Pooling::kMean : Pooling::kLast;
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::CheckEmbedding(const RequestOptions& options) const {
  const bool embeds = options.pooling != Pooling::kNone;
  if (!embeds && !options.classifies) {
    if (loaded_->info.is_headless) {
      return absl::InvalidArgumentError(
          "the model is a network without its head and generates nothing: set "
          "embedding");
    }
    if (!loaded_->info.is_encoder) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the model is an encoder and generates nothing: set embedding or, if "
        "it has labels, classification");
  }
  if (options.projects && loaded_->info.pooled_width == 0) {
    return absl::InvalidArgumentError(
        "the embedding is to go through layers that the model does not have");
  }
  if (embeds && options.classifies) {
    return absl::InvalidArgumentError(
        "embedding and classification are set, allowed: one of them");
  }
  if (options.max_tokens > 0 || options.logits != LogitsMode::kNone ||
      options.score_prompt || options.resume) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is set, and max_tokens, logits, score_prompt or resume too; "
        "allowed is one of them",
        embeds ? "embedding" : "classification"));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::Check(const RequestOptions& options) const {
  const int64_t vocab = loaded_->info.vocab_size;
  INLAY_RETURN_IF_ERROR(CheckEmbedding(options));
  INLAY_RETURN_IF_ERROR(Validate(options.sampling, vocab));
  INLAY_RETURN_IF_ERROR(CheckTokens(options.tokens, vocab, "tokens"));
  INLAY_RETURN_IF_ERROR(CheckTypes(options));
  INLAY_RETURN_IF_ERROR(CheckTokens(options.stop_tokens, vocab, "stop_tokens"));
  INLAY_RETURN_IF_ERROR(StopMatcher::Create(options.stop_strings).status());
  if (!options.stop_strings.empty()) {
    INLAY_RETURN_IF_ERROR(loaded_->RequireTokenizer().status());
  }
  if (options.max_tokens < -1) {
    return absl::InvalidArgumentError(FormattedString(
        "max_tokens is %d, allowed: -1 (no limit), or 0 and more",
        options.max_tokens));
  }
  return absl::OkStatus();
}

// By the cache as large as it is now: more would wait until it has grown again.
int64_t ModelRunner::UnlimitedTokens() const {
  const SchedulerConfig& config = scheduler_->config();
  const int64_t blocks = kv_->pool().num_total();
  const int64_t now = MostKvTokens(
      blocks,
      std::min(capacity_tokens_, blocks * config.groups.front().block_size),
      config);
  return now > 0 ? now : capacity_tokens_;
}

absl::StatusOr<ModelRunner::Draft> ModelRunner::MakeDraft(
    const Session& session, const RequestOptions& options) {
  Draft draft;
  const size_t kept = options.mode == InputMode::kReplace
                          ? CommonPrefix(session.log, options.tokens)
                          : session.log.size();
  const size_t skipped = options.mode == InputMode::kReplace ? kept : 0;
  const auto total =
      static_cast<int64_t>(kept + options.tokens.size() - skipped);
  if (total == 0) {
    return absl::InvalidArgumentError(
        "the input is empty and so is the session: there is nothing to go on "
        "from");
  }
  const SchedulerConfig& config = scheduler_->config();
  if (loaded_->info.is_encoder && total > config.max_batch_tokens) {
    return absl::InvalidArgumentError(FormattedString(
        "the input has %d tokens, and an encoder takes all of them in one "
        "step: at most max_batch_tokens, which is %d",
        total, config.max_batch_tokens));
  }
  const bool embeds = options.pooling != Pooling::kNone || options.classifies;
  const int64_t asked = embeds ? 0 : options.max_tokens;
  const int64_t room = loaded_->max_context - total;
  if (room < 0 || (room == 0 && asked != 0)) {
    return absl::InvalidArgumentError(
        FormattedString("the prompt has %d tokens with the session's log, the "
                        "context takes %d, "
                        "generated ones included",
                        total, loaded_->max_context));
  }
  const int64_t vocab = loaded_->info.vocab_size;
  // Unlimited means what this cache can hold, whose last token needs no KV, and
  // what a request may hold of logits.
  int64_t limit = asked;
  if (asked < 0) {
    limit = std::max<int64_t>(1, UnlimitedTokens() - total + 1);
    if (options.logits == LogitsMode::kGenerated) {
      limit = std::clamp<int64_t>(MaxLogitsRows(vocab), 1, limit);
    }
  }
  draft.max_new_tokens = std::min(limit, room);
  INLAY_RETURN_IF_ERROR(
      CheckLogitsBytes(options, total, draft.max_new_tokens, vocab));
  draft.prompt_begin =
      options.mode == InputMode::kReplace ? 0 : static_cast<int64_t>(kept);
  INLAY_ASSIGN_OR_RETURN(draft.first_wanted,
                         FirstWanted(options, draft.prompt_begin, total));
  if (embeds) {
    draft.first_wanted =
        loaded_->info.is_encoder
            ? 0
            : Pooler(options.pooling, options.normalise).first(total);
  }
  // By the context, not the cache: the same request must rotate the same
  // whatever the budget.
  const int64_t threshold = loaded_->info.rope_threshold;
  const int64_t longest = total + (asked < 0 ? room : std::min(asked, room));
  draft.is_long = threshold > 0 && longest > threshold;
  draft.log.reserve(static_cast<size_t>(total));
  draft.log.assign(session.log.begin(),
                   session.log.begin() + static_cast<int64_t>(kept));
  draft.log.insert(draft.log.end(),
                   options.tokens.begin() + static_cast<int64_t>(skipped),
                   options.tokens.end());
  return draft;
}

// All that takes time and needs no session.
absl::StatusOr<Sampler> ModelRunner::Prepare(SessionId id,
                                             RequestOptions& options) {
  bool session_is_empty = false;
  {
    MutexLock lock(&mu_);
    INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
    session_is_empty = session->log.empty();
  }
  INLAY_RETURN_IF_ERROR(Tokenize(options, session_is_empty));
  INLAY_RETURN_IF_ERROR(ChoosePooling(options));
  INLAY_RETURN_IF_ERROR(ChooseActivation(options));
  INLAY_RETURN_IF_ERROR(Check(options));
  absl::c_sort(options.logits_positions);
  // Every token is looked up in them.
  std::vector<int32_t>& stops = options.stop_tokens;
  absl::c_sort(stops);
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return Sampler::Create(options.sampling, loaded_->info.vocab_size);
}

absl::StatusOr<RequestId> ModelRunner::Submit(SessionId id,
                                              RequestOptions options) {
  INLAY_RETURN_IF_ERROR(context_.device->status());
  INLAY_ASSIGN_OR_RETURN(Sampler sampler, Prepare(id, options));
  absl::StatusOr<RequestId> request;
  {
    MutexLock lock(&mu_);
    // Looked up again: it may have become busy or gone meanwhile.
    INLAY_ASSIGN_OR_RETURN(Session * session, FindIdleSession(id));
    request = Admit(*session, std::move(options), std::move(sampler), Now());
  }
  if (request.ok() && context_.on_work) context_.on_work();
  return request;
}

// Whether the blocks set aside are all that the request can come to hold.
bool ModelRunner::HoldsAll(const KvSequence& hold,
                           const SchedRequest& entry) const {
  const SchedulerConfig& config = scheduler_->config();
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const int64_t held = hold.tables.group(g).num_tokens();
    if (held == 0 || held < PeakKvTokens(entry, config, config.groups[g]))
      return false;
  }
  return true;
}

SchedRequest ModelRunner::MakeEntry(Session& session, const Draft& draft,
                                    const RequestOptions& options,
                                    SteadyTime now) {
  SchedRequest entry;
  entry.session_id = session.id;
  entry.priority = options.priority;
  entry.num_tokens_total = static_cast<int64_t>(draft.log.size());
  entry.max_new_tokens = draft.max_new_tokens;
  entry.whole = loaded_->info.is_encoder;
  entry.tables = &session.kv.tables;
  entry.max_total_tokens = entry.num_tokens_total + entry.max_new_tokens;
  entry.reserved = HoldsAll(session.hold, entry);
  entry.submitted_us = ToMicroseconds(now);
  if (options.deadline_us > 0) {
    entry.deadline_us =
        entry.submitted_us +
        static_cast<int64_t>(std::min(options.deadline_us, kMostDeadlineUs));
  }
  entry.share_key =
      options.share_key != 0 ? kNamedShare | options.share_key : session.id;
  return entry;
}

absl::Status ModelRunner::CheckResume(const Session& session,
                                      const RequestOptions& options) {
  if (!options.resume) return absl::OkStatus();
  if (session.mark.generated_begin == 0) {
    return absl::FailedPreconditionError(
        "resume: the session has generated nothing yet");
  }
  if (options.sampling.seed != session.mark.seed) {
    return absl::InvalidArgumentError(FormattedString(
        "resume: seed is %d, the generation to go on with has %d",
        options.sampling.seed, session.mark.seed));
  }
  return absl::OkStatus();
}

absl::StatusOr<RequestId> ModelRunner::Admit(Session& session,
                                             RequestOptions&& options,
                                             Sampler&& sampler,
                                             SteadyTime now) {
  // The log this request would make; the session's own changes only at the end.
  INLAY_ASSIGN_OR_RETURN(Draft draft, MakeDraft(session, options));
  SchedRequest entry = MakeEntry(session, draft, options, now);
  entry.id = context_.next_id->fetch_add(1);
  INLAY_RETURN_IF_ERROR(CheckResume(session, options));
  Observe(options, session, draft.log, &sampler);
  INLAY_ASSIGN_OR_RETURN(StopMatcher matcher,
                         StopMatcher::Create(options.stop_strings));
  const size_t context_size = std::min(draft.log.size(), kDecodeContext);
  OutputAssembler output(
      loaded_->tokenizer.get(), std::move(matcher),
      !options.stop_strings.empty(),
      absl::MakeConstSpan(draft.log).subspan(draft.log.size() - context_size));

  SamplerMark mark = options.resume
                         ? session.mark
                         : SamplerMark{options.sampling.seed, 0,
                                       static_cast<int64_t>(draft.log.size())};
  mark.CutTo(draft.log.size());
  options.text = std::string();
  const std::vector<int32_t> input = std::exchange(options.tokens, {});
  auto request =
      std::make_unique<Request>(entry.id, &session, std::move(options),
                                std::move(sampler), std::move(output));
  request->prompt_begin = draft.prompt_begin;
  request->prompt_end = entry.num_tokens_total;
  request->max_new_tokens = entry.max_new_tokens;
  request->finish.prompt_tokens = static_cast<uint64_t>(entry.num_tokens_total);
  request->first_wanted = draft.first_wanted;
  if (request->options.classifies && loaded_->info.labels_of_mean) {
    request->pooler = Pooler(Pooling::kMean, false);
  } else {
    // Behind the model's layers it is normalised later.
    request->pooler =
        Pooler(request->options.pooling,
               request->options.normalise && !request->options.projects);
  }
  request->submitted = now;

  // The scheduler last: until it knows the request, all can be taken back.
  auto undo = absl::MakeCleanup([&] {
    requests_.erase(entry.id);
    context_.events->Drop(entry.id);
  });
  context_.events->Open(entry.id);
  requests_.emplace(entry.id, std::move(request));
  INLAY_RETURN_IF_ERROR(scheduler_->Submit(entry));
  std::move(undo).Cancel();
  // Set aside for less: others before it may wait for those blocks, and it for
  // them.
  if (!entry.reserved && session.hold.tables.num_tokens() > 0) {
    KvCache::Clear(&session.hold);
    scheduler_->Retry();
  }
  session.log = std::move(draft.log);
  session.active = entry.id;
  session.is_long = draft.is_long;
  session.mark = mark;
  try {
    kv_->Prefetch(session.salt(), session.log);
  } catch (const std::bad_alloc&) {
    // It only makes a later step faster.
  }
  // A prefix's own request follows from what began it.
  if (session.warms == 0) {
    ++metrics_.requests_submitted;
    const Request& made = *requests_.at(entry.id);
    Record([&] {
      SubmitEntry submit{session.id, entry.id, entry.submitted_us,
                         made.options};
      submit.options.tokens = input;
      return submit;
    });
  }
  context_.trace->Submitted(context_.trace_model, entry.id,
                            entry.num_tokens_total);
  return entry.id;
}

}  // namespace inlay

package dev.inlay;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * What a request generates and how. What is not set has the library's default: greedy, until a stop. Sampling runs in the order
 * bias, penalties, temperature, top-k, top-p, min-p. Not thread-safe; may be used again after the call.
 */
public final class RequestOptions {
  private final OptionList<InlayRequestOptions> settings;
  /** Whose files give the defaults; null: none. */
  private final Model model;

  public RequestOptions() {
    this((Model) null);
  }

  RequestOptions(Model model) {
    this.settings = new OptionList<>();
    this.model = model;
  }

  private RequestOptions(RequestOptions other) {
    this.settings = new OptionList<>(other.settings);
    this.model = other.model;
  }

  public RequestOptions copy() {
    return new RequestOptions(this);
  }

  /** The input is the whole new log: what it shares with the old one from the start stays cached. So it always is for chat. */
  public RequestOptions replace(boolean on) {
    settings.add(o -> o.setInput_mode(on ? 1 : 0));
    return this;
  }

  /** To generate; -1 (default): until a stop or the end of the context; 0: only compute the prompt. */
  public RequestOptions maxTokens(int tokens) {
    settings.add(o -> o.setMax_tokens(tokens));
    return this;
  }

  /** End-of-sequence tokens do not stop. */
  public RequestOptions ignoreEos(boolean on) {
    settings.add(o -> o.setIgnore_eos(on ? 1 : 0));
    return this;
  }

  /** They stop like end-of-sequence. */
  public RequestOptions stopTokens(int... tokens) {
    int[] copy = tokens.clone();
    settings.add(o -> o.keepStopTokens(copy));
    return this;
  }

  /** Generation stops before them, and no part of one is emitted; at most 64 of at most 1024 bytes. */
  public RequestOptions stop(String... strings) {
    byte[][] bytes = Text.terminated(List.of(strings), "stop");
    settings.add(o -> o.keepStopStrings(bytes));
    return this;
  }

  /** 0 (default): greedy. */
  public RequestOptions temperature(double temperature) {
    settings.add(o -> o.setTemperature((float) temperature));
    return this;
  }

  /** 0 (default): off. */
  public RequestOptions topK(int k) {
    settings.add(o -> o.setTop_k(k));
    return this;
  }

  /** 1 (default): off. */
  public RequestOptions topP(double p) {
    settings.add(o -> o.setTop_p((float) p));
    return this;
  }

  /** 0 (default): off. */
  public RequestOptions minP(double p) {
    settings.add(o -> o.setMin_p((float) p));
    return this;
  }

  /** Of prompt and generated tokens; 1 (default): off. */
  public RequestOptions repetitionPenalty(double penalty) {
    settings.add(o -> o.setRepetition_penalty((float) penalty));
    return this;
  }

  /** Of generated tokens; 0 (default): off. */
  public RequestOptions frequencyPenalty(double penalty) {
    settings.add(o -> o.setFrequency_penalty((float) penalty));
    return this;
  }

  /** Of generated tokens; 0 (default): off. */
  public RequestOptions presencePenalty(double penalty) {
    settings.add(o -> o.setPresence_penalty((float) penalty));
    return this;
  }

  /** The same seed, prompt and options give the same tokens. */
  public RequestOptions seed(long seed) {
    settings.add(o -> o.setSeed(seed));
    return this;
  }

  /** Added to the logits of these tokens; negative infinity forbids one. */
  public RequestOptions logitBias(Map<Integer, Float> bias) {
    int[] pairs = new int[2 * bias.size()];
    int next = 0;
    for (Map.Entry<Integer, Float> entry : bias.entrySet()) {
      pairs[next++] = entry.getKey();
      pairs[next++] = Float.floatToRawIntBits(entry.getValue());
    }
    settings.add(o -> o.keepLogitBias(pairs));
    return this;
  }

  /** -1 (default): none; 0: of the chosen token; n: of the n likeliest too, at most 128. */
  public RequestOptions logprobs(int alternatives) {
    settings.add(o -> o.setNum_logprobs(alternatives));
    return this;
  }

  /** Logits that come as {@link Event.Logits}; default none. */
  public RequestOptions logits(LogitsMode mode) {
    settings.add(o -> o.setLogits(mode.ordinal()));
    return this;
  }

  /** Logits of these positions of the session. */
  public RequestOptions logitsAt(long... positions) {
    long[] copy = positions.clone();
    settings.add(o -> {
      o.setLogits(LogitsMode.POSITIONS.ordinal());
      o.keepLogitsPositions(copy);
    });
    return this;
  }

  /** {@link Event.Scores} with the log-probability of each prompt token given those before it. */
  public RequestOptions scorePrompt(boolean on) {
    settings.add(o -> o.setScore_prompt(on ? 1 : 0));
    return this;
  }

  /**
   * One vector of the whole log, as {@link Event.Embedding}, instead of a generation; logits, {@link #scorePrompt} and
   * {@link #resume} are not for it, nor more than 0 tokens. Encoders can do nothing else. Default none.
   */
  public RequestOptions embedding(EmbeddingMode mode) {
    settings.add(o -> o.setEmbedding(mode.ordinal()));
    return this;
  }

  /**
   * The scores of the labels of a model that has some, as {@link Event.Classification}, instead of a generation; what {@link #embedding}
   * says of other options holds here. Default none.
   */
  public RequestOptions classification(ClassificationMode mode) {
    settings.add(o -> o.setClassification(mode.ordinal()));
    return this;
  }

  /** The embedding is scaled to length 1; {@link EmbeddingMode#DEFAULT} does what the model's files say. */
  public RequestOptions normalise(boolean on) {
    settings.add(o -> o.setNormalise(on ? 1 : 0));
    return this;
  }

  /** Higher runs first; default 0. */
  public RequestOptions priority(int priority) {
    settings.add(o -> o.setPriority(priority));
    return this;
  }

  /** The session's last generation goes on: random draws and penalties continue. The seed must be the same. */
  public RequestOptions resume(boolean on) {
    settings.add(o -> o.setResume(on ? 1 : 0));
    return this;
  }

  /**
   * From submit, to microseconds: earlier ones run first among equal priorities, and a request still there when it passes ends with
   * {@link DeadlineExceededException}. Zero (default): none.
   */
  public RequestOptions deadline(Duration deadline) {
    long micros = Check.micros(deadline, "deadline");
    settings.add(o -> o.setDeadline_us(micros));
    return this;
  }

  /** Requests of one key count against one share of the engine, such as a user's; 0 (default): the session's own. */
  public RequestOptions shareKey(long key) {
    settings.add(o -> o.setShare_key(key));
    return this;
  }

  /** To be deleted. */
  InlayRequestOptions make(Input input) {
    InlayRequestOptions made = new InlayRequestOptions();
    try {
      if (model != null) model.call(number -> InlayC.inlay_model_request_options(number, made));
      settings.applyTo(made);
      input.applyTo(made);
      return made;
    } catch (RuntimeException | Error e) {
      made.delete();
      throw e;
    }
  }
}

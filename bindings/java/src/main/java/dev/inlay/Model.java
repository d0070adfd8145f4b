package dev.inlay;

import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/** Weights, tokenizer and chat template of one model. Sessions run on it, and keep it after {@link #close}. */
public final class Model extends NativeObject {
  private final Engine engine;

  Model(Engine engine, long number) {
    super(number, InlayC::inlay_model_release);
    this.engine = engine;
  }

  public Engine engine() {
    return engine;
  }

  public ModelInfo info() {
    return call(model -> {
      InlayModelInfo info = new InlayModelInfo();
      try {
        InlayC.inlay_model_get_info(model, info);
        return new ModelInfo(info);
      } finally {
        info.delete();
      }
    });
  }

  // ---- Text

  /** The tokens of {@code text}, with what the tokenizer puts around it; text that spells a special token becomes that token. */
  public int[] tokenize(String text) {
    return tokenize(text, true, true);
  }

  /**
   * @param addSpecial what the tokenizer puts around a text (BOS, EOS)
   * @param parseSpecial text that spells a special token becomes that token: not for text one does not trust
   * @throws UnsupportedException the model has no tokenizer
   */
  public int[] tokenize(String text, boolean addSpecial, boolean parseSpecial) {
    byte[] bytes = Text.bytes(text);
    int flags = TextFlags.of(addSpecial, parseSpecial);
    return call(model -> Tokens.read(
        (tokens, count) -> InlayC.inlay_model_tokenize(model, bytes, flags, tokens, count), bytes.length / 2 + 16));
  }

  /** The text of {@code tokens}, special ones left out. */
  public String detokenize(int... tokens) {
    return detokenize(tokens, true);
  }

  /** @throws InvalidArgumentException ids outside the vocabulary */
  public String detokenize(int[] tokens, boolean skipSpecial) {
    byte[][] text = new byte[1][];
    call(model -> InlayC.inlay_model_detokenize(model, tokens, skipSpecial ? TextFlags.SKIP_SPECIAL : 0, text));
    return Text.string(text[0]);
  }

  /** What the model's chat template makes of a conversation, with the place for the answer at its end. */
  public String render(List<Message> messages) {
    return render(Chat.of(messages).addGenerationPrompt(true));
  }

  /** @throws UnsupportedException the model has no chat template, and {@code chat} brings none */
  public String render(Chat chat) {
    byte[] json = Text.bytes(chat.json());
    byte[][] text = new byte[1][];
    call(model -> InlayC.inlay_chat_render(model, json, text));
    return Text.string(text[0]);
  }

  /** Options with the sampling settings that the model's own files ask for. */
  public RequestOptions requestOptions() {
    return new RequestOptions(this);
  }

  // ---- Sessions

  /** An empty session. It costs nothing until its first request. */
  public Session newSession() {
    long[] session = new long[1];
    call(model -> InlayC.inlay_session_create(model, session));
    return new Session(this, session[0], null);
  }

  /**
   * A session that goes on with exactly the tokens that the one saved by {@link Session#save(Path)} would have.
   * {@link Session#restored()} says what came back. Trust a snapshot as you trust a model.
   *
   * @throws InvalidArgumentException no snapshot, or one of another vocabulary
   */
  public Session restore(Path path) {
    byte[] name = Text.terminated(path.toString(), "path");
    return restore((model, session, info) -> InlayC.inlay_session_restore(model, name, session, info));
  }

  /** The same from the bytes of {@link Session#save()}. */
  public Session restore(byte[] snapshot) {
    return restore((model, session, info) -> InlayC.inlay_session_restore_buffer(model, snapshot, session, info));
  }

  private interface Restore {
    int call(long model, long[] session, InlayRestoreInfo info);
  }

  private Session restore(Restore restore) {
    return call(model -> {
      long[] session = new long[1];
      InlayRestoreInfo info = new InlayRestoreInfo();
      try {
        restore.call(model, session, info);
        return new Session(this, session[0], new RestoreInfo(info));
      } finally {
        info.delete();
      }
    });
  }

  // ---- Embeddings

  /**
   * A vector for each text, in their order, each what it would be alone; they are computed side by side, in sessions of their own. The
   * first failure ends all of it. On a host-driven engine it steps meanwhile, unless another thread does.
   *
   * @throws InvalidArgumentException naming the option, or what is wrong with a text
   * @throws CancelledException the waiting thread was interrupted
   */
  public List<float[]> embed(List<String> texts, EmbeddingOptions options) {
    return embedInputs(texts.stream().map(Input::text).toList(), options);
  }

  /** The same of texts and tokens; models without a tokenizer need those. */
  public List<float[]> embedInputs(List<Input> inputs, EmbeddingOptions options) {
    return new Embedder(this, inputs, options).run();
  }

  /** {@link #embedAsync(List, EmbeddingOptions, Executor)} on a thread of Inlay's own. */
  public CompletableFuture<List<float[]>> embedAsync(List<String> texts, EmbeddingOptions options) {
    return embedAsync(texts, options, Threads.executor());
  }

  /** {@link #embed} by {@code executor}, one of whose threads it takes until the end. Cancelling the future cancels what runs. */
  public CompletableFuture<List<float[]>> embedAsync(List<String> texts, EmbeddingOptions options, Executor executor) {
    Embedder embedder = new Embedder(this, texts.stream().map(Input::text).toList(), options);
    CompletableFuture<List<float[]>> future = CompletableFuture.supplyAsync(embedder::run, executor);
    future.whenComplete((vectors, error) -> {
      if (error != null) embedder.cancel();
    });
    return future;
  }

  // ---- Classification

  /** The scores of the model's labels for each input (a text, {@link Input#pair}), in the way of {@link #embed}. */
  public List<float[]> classify(List<Input> inputs, ClassificationMode mode) {
    if (mode == ClassificationMode.NONE) throw new IllegalArgumentException("mode is NONE, allowed: all others");
    return new Embedder(this, inputs, new RequestOptions().classification(mode), Request::scores).run();
  }

  /** {@link #classify} of pairs: {@code text} with each of {@code others}, as a cross-encoder scores a query's documents. */
  public List<float[]> classifyPairs(String text, List<String> others, ClassificationMode mode) {
    return classify(others.stream().map(other -> Input.pair(text, other)).toList(), mode);
  }

  // ---- Named prefixes

  /** A pinned prefix that may take the whole cache: {@link #createPrefix(String, Input, boolean, long)}. */
  public Prefix createPrefix(String name, Input input) {
    return createPrefix(name, input, true, 0);
  }

  /**
   * Tokens that many sessions begin with, under a name.
   *
   * @param pin compute its KV in the engine's own time, and keep it
   * @param budgetBytes of KV that it may pin; 0: the whole cache
   * @throws InvalidStateException the model has a prefix of that name
   * @throws ResourceExhaustedException pinned, it would not fit
   */
  public Prefix createPrefix(String name, Input input, boolean pin, long budgetBytes) {
    byte[] bytes = Text.terminated(name, "name");
    Check.notNegative(budgetBytes, "budgetBytes");
    return call(model -> {
      InlayPrefixOptions made = new InlayPrefixOptions();
      long[] prefix = new long[1];
      try {
        input.applyTo(made);
        made.setPin(pin ? 1 : 0);
        made.setBudget_bytes(budgetBytes);
        InlayC.inlay_prefix_create(model, bytes, made, prefix);
      } finally {
        made.delete();
      }
      return new Prefix(this, name, prefix[0]);
    });
  }

  /** @throws NotFoundException the model has no prefix of that name */
  public Prefix findPrefix(String name) {
    byte[] bytes = Text.terminated(name, "name");
    long[] prefix = new long[1];
    call(model -> InlayC.inlay_prefix_find(model, bytes, prefix));
    return new Prefix(this, name, prefix[0]);
  }

  // ---- Record and replay

  /**
   * Writes all that comes in and every step's plan and tokens to a file that only its owner can read: it holds the prompts.
   *
   * @throws InvalidStateException while the model records or requests run in it
   */
  public void startRecording(Path path) {
    byte[] name = Text.terminated(path.toString(), "path");
    call(model -> InlayC.inlay_model_record_start(model, name));
  }

  /** Throws what ended the recording before, if something did. */
  public void stopRecording() {
    call(InlayC::inlay_model_record_stop);
  }

  /** Serves a recording again and compares every plan and token; the report is JSON ({@code inlay_model_replay} in inlay.h). */
  public String replay(Path path) {
    byte[] name = Text.terminated(path.toString(), "path");
    byte[][] report = new byte[1][];
    call(model -> InlayC.inlay_model_replay(model, name, report));
    return Text.string(report[0]);
  }
}

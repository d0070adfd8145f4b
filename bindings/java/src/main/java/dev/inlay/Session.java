package dev.inlay;

import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A token log and its KV cache: grows by requests, can be forked, rewound and saved. One request at a time; many sessions run side by
 * side. Closing it cancels its request.
 */
public final class Session extends NativeObject {
  private final Model model;
  private final RestoreInfo restored;

  Session(Model model, long number, RestoreInfo restored) {
    super(number, InlayC::inlay_session_release);
    this.model = model;
    this.restored = restored;
  }

  public Model model() {
    return model;
  }

  // ---- Requests

  /** {@code text} follows the session's log; generates until a stop. */
  public Request submit(String text) {
    return submit(Input.text(text), new RequestOptions());
  }

  public Request submit(String text, RequestOptions options) {
    return submit(Input.text(text), options);
  }

  /** {@code messages} are the whole conversation: what they share with the session's log from its start stays cached. */
  public Request chat(List<Message> messages, RequestOptions options) {
    return submit(Input.chat(Chat.of(messages)), options);
  }

  /**
   * Starts a generation. The session is busy until it ends; its tokens are added to the log.
   *
   * @throws InvalidStateException a request runs in this session
   * @throws ResourceExhaustedException it could never fit the KV cache, or the queue is full
   * @throws InvalidArgumentException naming the option
   */
  public Request submit(Input input, RequestOptions options) {
    return call(session -> {
      InlayRequestOptions made = options.make(input);
      long[] request = new long[1];
      try {
        InlayC.inlay_session_submit(session, made, request);
      } finally {
        made.delete();
      }
      return new Request(this, request[0]);
    });
  }

  /** Submits and waits for the end: {@link Request#result()}. */
  public Generation generate(String text, RequestOptions options) {
    return generate(Input.text(text), options);
  }

  public Generation generate(Input input, RequestOptions options) {
    try (Request request = submit(input, options)) {
      return request.result();
    }
  }

  /** Submits, and waits on another thread: {@link Request#resultAsync()}. What submitting throws fails the future. */
  public CompletableFuture<Generation> generateAsync(Input input, RequestOptions options) {
    try {
      return submit(input, options).resultAsync();
    } catch (RuntimeException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  public CompletableFuture<Generation> generateAsync(String text, RequestOptions options) {
    return generateAsync(Input.text(text), options);
  }

  /** What {@link #submit(Input, RequestOptions)} would need now. */
  public Quote quote(Input input, RequestOptions options) {
    return quote(input, options, false);
  }

  /**
   * @param reserve set memory for all of it aside, until the session's next request begins, its next quote, its end, or a smaller
   *     memory budget
   * @throws ResourceExhaustedException there is no memory to reserve
   */
  public Quote quote(Input input, RequestOptions options, boolean reserve) {
    return call(session -> {
      InlayRequestOptions made = options.make(input);
      InlayQuote quote = new InlayQuote();
      try {
        InlayC.inlay_request_quote(session, made, reserve ? 1 : 0, quote);
        return new Quote(quote);
      } finally {
        quote.delete();
        made.delete();
      }
    });
  }

  // ---- The log

  public SessionInfo info() {
    return call(session -> {
      InlaySessionInfo info = new InlaySessionInfo();
      try {
        InlayC.inlay_session_get_info(session, info);
        return new SessionInfo(info);
      } finally {
        info.delete();
      }
    });
  }

  /** The token log. */
  public int[] tokens() {
    int expected = (int) Math.min(info().numTokens() + 16, Integer.MAX_VALUE - 8);
    return call(session -> Tokens.read((tokens, count) -> InlayC.inlay_session_tokens(session, tokens, count), expected));
  }

  /**
   * A new session with the same log. Memory is shared, and copied only where the two come to differ.
   *
   * @throws InvalidStateException a request runs in this session
   */
  public Session fork() {
    long[] fork = new long[1];
    call(session -> InlayC.inlay_session_fork(session, fork));
    return new Session(model, fork[0], null);
  }

  /**
   * Cuts the log back to its first {@code numTokens} tokens.
   *
   * @throws InvalidStateException a request runs in this session
   * @throws InvalidArgumentException the log is shorter
   */
  public void rewind(long numTokens) {
    Check.notNegative(numTokens, "numTokens");
    call(session -> InlayC.inlay_session_rewind(session, numTokens));
  }

  // ---- Snapshots

  /**
   * To a file, which is replaced as a whole or not at all. {@link Model#restore(Path)} brings it back, to go on exactly as this one.
   *
   * @throws InvalidStateException a request runs: cancel it, save, and go on later with {@link RequestOptions#resume}
   */
  public void save(Path path) {
    byte[] name = Text.terminated(path.toString(), "path");
    call(session -> InlayC.inlay_session_save(session, name));
  }

  /** The same as bytes. */
  public byte[] save() {
    byte[][] snapshot = new byte[1][];
    call(session -> InlayC.inlay_session_save_buffer(session, snapshot));
    return snapshot[0];
  }

  /** Of a session that {@link Model#restore} made: what came back. */
  public Optional<RestoreInfo> restored() {
    return Optional.ofNullable(restored);
  }
}

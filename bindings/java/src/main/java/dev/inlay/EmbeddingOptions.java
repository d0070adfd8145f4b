package dev.inlay;

/** How {@link Model#embed} makes vectors. What is not set has the library's default. Not thread-safe; may be used again after the call. */
public final class EmbeddingOptions {
  private final RequestOptions request = new RequestOptions().embedding(EmbeddingMode.DEFAULT);

  public EmbeddingOptions() {}

  /** Default {@link EmbeddingMode#DEFAULT}; not {@link EmbeddingMode#NONE}. */
  public EmbeddingOptions mode(EmbeddingMode mode) {
    if (mode == EmbeddingMode.NONE) throw new IllegalArgumentException("mode is NONE, allowed: all others");
    request.embedding(mode);
    return this;
  }

  /** To length 1; {@link EmbeddingMode#DEFAULT} does what the model's files say. */
  public EmbeddingOptions normalise(boolean on) {
    request.normalise(on);
    return this;
  }

  /** Higher runs first; default 0. */
  public EmbeddingOptions priority(int priority) {
    request.priority(priority);
    return this;
  }

  /** As {@link RequestOptions#shareKey}. */
  public EmbeddingOptions shareKey(long key) {
    request.shareKey(key);
    return this;
  }

  RequestOptions request() {
    return request.copy();
  }
}

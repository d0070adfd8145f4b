package dev.inlay;

/** Follows the loading or quantising of a model, on the thread that asked for it. */
@FunctionalInterface
public interface ProgressListener {
  /**
   * Must not call Inlay. What it throws cancels the call and is thrown by it.
   *
   * @param fraction of this stage, 0 to 1
   * @return whether to go on; {@code false} makes the call throw {@link CancelledException}
   */
  boolean progress(LoadStage stage, float fraction);
}

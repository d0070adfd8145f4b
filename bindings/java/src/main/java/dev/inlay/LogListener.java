package dev.inlay;

/** Gets an engine's log: {@link EngineOptions#log}. */
@FunctionalInterface
public interface LogListener {
  /**
   * Called on whichever thread has something to say, also on threads of the engine; must be thread-safe and quick. Must not call
   * Inlay: that throws {@link IllegalStateException}. What it throws is dropped.
   */
  void log(LogLevel level, String message);
}

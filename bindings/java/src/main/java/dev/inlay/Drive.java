package dev.inlay;

/** Who runs an engine's steps. */
public enum Drive {
  /**
   * The host, by {@link Engine#step}; and whoever waits for an event or a result steps meanwhile. For games and others that decide
   * when time is spent.
   */
  HOST,
  /** A thread of the engine's own, which sleeps when there is no work. The default in Java. */
  THREAD
}

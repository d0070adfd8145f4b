package dev.inlay;

/** How weight files get into memory. */
public enum Weights {
  /** Mapped: fast to load and shared between processes; the files must not be truncated meanwhile. */
  MAP,
  /** Read. */
  READ
}

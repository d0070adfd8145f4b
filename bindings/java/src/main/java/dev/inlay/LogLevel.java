package dev.inlay;

/** How much a message of the log matters. */
public enum LogLevel {
  ERROR,
  WARNING,
  INFO,
  DEBUG
}

package dev.inlay;

/** What a call of the library ended with: the codes of {@code inlay_status}. */
public enum Status {
  OK,
  /** A value, file or text is not what it must be. */
  INVALID_ARGUMENT,
  INVALID_HANDLE,
  /** The right call at the wrong moment: for example a second request in a busy session. */
  INVALID_STATE,
  /** A file, tensor, template or kernel that was named does not exist. */
  NOT_FOUND,
  /** Well-formed, but this build cannot do it. */
  UNSUPPORTED,
  /** Over a budget or limit of this engine. */
  RESOURCE_EXHAUSTED,
  OUT_OF_MEMORY,
  CANCELLED,
  /** Nothing within the time asked, or a request's deadline passed. */
  TIMEOUT,
  END,
  /** The engine was closed. */
  CLOSED,
  /** The system refused to read or write a file. */
  IO_ERROR,
  /** The model produced NaN or infinity for this request. */
  NUMERIC,
  /** The device failed; the engine can only be closed. */
  DEVICE_LOST,
  /** A bug in the library, or a code that this version does not know. */
  INTERNAL;

  static Status of(int code) {
    Status[] all = values();
    return code >= 0 && code < all.length ? all[code] : INTERNAL;
  }
}

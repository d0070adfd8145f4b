package dev.inlay;

/**
 * The library refused or could not do something. The message says what, the value got, the value allowed and the next step.
 *
 * <p>Codes that people tell apart have subclasses. Using something after it was closed is an {@link IllegalStateException} instead.
 */
public class InlayException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Status status;
  private final int code;

  InlayException(int code, String message) {
    super(message);
    this.status = Status.of(code);
    this.code = code;
  }

  public Status status() {
    return status;
  }

  /** The number of {@code inlay_status}, also one that {@link Status} does not know. */
  public int code() {
    return code;
  }

  /** As the library spells it, such as {@code "INLAY_IO_ERROR"}. */
  public String codeName() {
    return Text.string(InlayC.inlay_status_name(code));
  }

  @Override
  public String toString() {
    return getClass().getName() + ": " + getMessage() + " (" + codeName() + ")";
  }

  static InlayException of(int code, String message) {
    return switch (Status.of(code)) {
      case INVALID_ARGUMENT -> new InvalidArgumentException(code, message);
      case INVALID_STATE -> new InvalidStateException(code, message);
      case NOT_FOUND -> new NotFoundException(code, message);
      case UNSUPPORTED -> new UnsupportedException(code, message);
      case RESOURCE_EXHAUSTED, OUT_OF_MEMORY -> new ResourceExhaustedException(code, message);
      case CANCELLED -> new CancelledException(code, message);
      case TIMEOUT -> new DeadlineExceededException(code, message);
      case DEVICE_LOST -> new DeviceLostException(code, message);
      default -> new InlayException(code, message);
    };
  }

  /** Called by the library's wrapper. */
  static void raise(int code, byte[] message) {
    throw of(code, Text.string(message));
  }
}

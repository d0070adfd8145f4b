package dev.inlay;

/** Over a budget or limit of the engine, or memory has run out. */
public class ResourceExhaustedException extends InlayException {
  private static final long serialVersionUID = 1;

  ResourceExhaustedException(int code, String message) {
    super(code, message);
  }
}

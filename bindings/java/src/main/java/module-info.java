/** LLM inference inside a Java program. */
module dev.inlay {
  exports dev.inlay;
}

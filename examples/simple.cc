// Streams what a model makes of a prompt.
#include <inlay/inlay.hpp>
#include <iostream>

int Fail(const inlay::Error& error) {
  std::cerr << error.message() << "\n";
  return 1;
}

int main(int argc, char** argv) {
  auto engine = inlay::Engine::Create();
  if (!engine) return Fail(engine.error());
  auto model = engine->Load(argc > 1 ? argv[1] : "examples/models/pocket-7m");
  if (!model) return Fail(model.error());
  auto session = model->NewSession();
  if (!session) return Fail(session.error());
  auto request = session->Submit("Once upon a time,");
  if (!request) return Fail(request.error());
  while (auto event = engine->NextStepping(*request)) {
    std::cout << event->text() << std::flush;
    if (event->info().finish_reason == INLAY_FINISH_ERROR) {
      std::cerr << event->info().message << "\n";
    }
  }
  std::cout << "\n";
}

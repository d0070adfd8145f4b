#include "tests/examples/xml.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

namespace inlay {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  bool Parse() {
    if (Take("<?xml ")) {
      const size_t end = text_.find("?>", at_);
      if (end == std::string::npos) return false;
      at_ = end + 2;
    }
    while (at_ < text_.size()) {
      if (text_[at_] == '<' ? !Tag() : !Text()) return false;
    }
    return open_.empty() && !elements_.empty();
  }
  std::vector<XmlElement>& elements() { return elements_; }

 private:
  bool Take(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void Space() {
    while (at_ < text_.size() && std::isspace(Byte())) ++at_;
  }
  unsigned char Byte() const { return static_cast<unsigned char>(text_[at_]); }

  std::string Name() {
    std::string name;
    while (at_ < text_.size() &&
           (std::isalnum(Byte()) || text_[at_] == '-' || text_[at_] == ':')) {
      name += text_[at_++];
    }
    return name;
  }

  bool Tag() {
    if (Take("</")) {
      if (open_.empty() || Name() != elements_[open_.back()].name) return false;
      open_.pop_back();
      return Take(">");
    }
    // One root only.
    if (!Take("<") || (open_.empty() && !elements_.empty())) return false;
    XmlElement element = {Name(), {}, "", static_cast<int>(open_.size())};
    if (element.name.empty()) return false;
    while (true) {
      Space();
      if (Take("/>")) {
        elements_.push_back(element);
        return true;
      }
      if (Take(">")) {
        open_.push_back(elements_.size());
        elements_.push_back(element);
        return true;
      }
      if (!Attribute(&element)) return false;
    }
  }

  bool Attribute(XmlElement* element) {
    const std::string name = Name();
    if (name.empty() || !Take("=\"")) return false;
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (!Character(&value)) return false;
    }
    return Take("\"") && element->attributes.emplace(name, value).second;
  }

  bool Text() {
    while (at_ < text_.size() && text_[at_] != '<') {
      std::string* into = nullptr;
      std::string outside;
      into = open_.empty() ? &outside : &elements_[open_.back()].text;
      if (!Character(into)) return false;
      if (open_.empty() &&
          !std::isspace(static_cast<unsigned char>(outside[0])))
        return false;
    }
    return true;
  }

  bool Character(std::string* into) {
    static const std::map<std::string, char> kEntities = {{"&amp;", '&'},
                                                          {"&lt;", '<'},
                                                          {"&gt;", '>'},
                                                          {"&quot;", '"'},
                                                          {"&apos;", '\''}};
    for (const auto& [entity, c] : kEntities) {
      if (Take(entity)) {
        *into += c;
        return true;
      }
    }
    if (text_[at_] == '&' || text_[at_] == '<') return false;
    if (Byte() < 0x20 && text_[at_] != '\n') return false;
    *into += text_[at_++];
    return true;
  }

  const std::string& text_;
  size_t at_ = 0;
  std::vector<XmlElement> elements_;
  std::vector<size_t> open_;
};

}  // namespace

double XmlElement::Number(const std::string& attribute) const {
  const auto found = attributes.find(attribute);
  if (found == attributes.end() || found->second.empty()) return NAN;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  return *end == '\0' ? value : NAN;
}

std::optional<std::vector<XmlElement>> ParseXml(const std::string& text) {
  Parser parser(text);
  if (!parser.Parse()) return std::nullopt;
  return std::move(parser.elements());
}

}  // namespace inlay

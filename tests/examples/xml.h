// Reads an XML document strictly enough to know that it is one, for tests of
// what the examples write: elements, attributes, text and the five entities.
#ifndef INLAY_TESTS_EXAMPLES_XML_H_
#define INLAY_TESTS_EXAMPLES_XML_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace inlay {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // directly in it
  int depth = 0;

  // Of an attribute that is a number; NaN if it is none.
  double Number(const std::string& attribute) const;
};

// Every element in document order; nothing if the text is not well-formed.
std::optional<std::vector<XmlElement>> ParseXml(const std::string& text);

}  // namespace inlay

#endif  // INLAY_TESTS_EXAMPLES_XML_H_

// The binary interface itself: what libinlay.so exports, and that inlay.h is
// laid out as its versions (abi_1.def and on) were released.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths/paths.h"

namespace inlay::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

bool IsOfWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}
bool IsNumber(const std::string& word) {
  return std::isdigit(static_cast<unsigned char>(word[0]));
}

// The words of a C file and the signs between them, without comments; empty
// ones at the end, so that a few may be looked at from any.
std::vector<std::string> Words(const std::string& path) {
  const std::string text = ReadFile(path);
  std::vector<std::string> words;
  for (size_t at = 0, end; at < text.size(); at = end) {
    if (text.compare(at, 2, "/*") == 0) {
      end = std::min(text.find("*/", at), text.size() - 2) + 2;
    } else if (text.compare(at, 2, "//") == 0) {
      end = std::min(text.find('\n', at), text.size());
    } else {
      end = at + 1;
      while (IsOfWord(text[at]) && IsOfWord(text[end])) ++end;
      if (!std::isspace(static_cast<unsigned char>(text[at]))) {
        words.push_back(text.substr(at, end - at));
      }
    }
  }
  words.resize(words.size() + 8);
  return words;
}

std::vector<std::string> HeaderWords() {
  return Words(SourceDir() + "/api/include/inlay/inlay.h");
}

// INLAY_API type inlay_name(
std::set<std::string> DeclaredFunctions() {
  std::set<std::string> names;
  bool is_declaration = false;
  const std::vector<std::string> words = HeaderWords();
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    is_declaration |= words[i] == "INLAY_API";
    if (is_declaration && words[i].starts_with("inlay_") &&
        words[i + 1] == "(") {
      names.insert(words[i]);
      is_declaration = false;
    }
    is_declaration &= words[i] != ";";
  }
  return names;
}

template <typename T>
const T* At(const std::string& file, size_t offset) {
  EXPECT_LE(offset + sizeof(T), file.size());
  return reinterpret_cast<const T*>(file.data() + offset);
}

// What the ELF file defines in its .dynsym: symbol -> version. Nodes of
// versions are symbols too, which have their own name for version.
std::map<std::string, std::string> ExportedSymbols(const std::string& path) {
  const std::string file = ReadFile(path);
  const auto* elf = At<Elf64_Ehdr>(file, 0);
  EXPECT_EQ(std::memcmp(elf->e_ident, ELFMAG, SELFMAG), 0) << path;
  const auto section = [&](size_t s) {
    return At<Elf64_Shdr>(file, elf->e_shoff + s * sizeof(Elf64_Shdr));
  };
  const auto text = [&](const Elf64_Shdr* of, size_t at) {
    return file.c_str() + section(of->sh_link)->sh_offset + at;
  };
  const Elf64_Shdr* symbols = nullptr;
  const Elf64_Shdr* indices = nullptr;
  std::map<uint16_t, std::string> versions;
  for (size_t s = 0; s < elf->e_shnum; ++s) {
    const Elf64_Shdr* header = section(s);
    if (header->sh_type == SHT_DYNSYM) symbols = header;
    if (header->sh_type == SHT_GNU_versym) indices = header;
    if (header->sh_type != SHT_GNU_verdef) continue;
    size_t at = header->sh_offset;
    for (size_t n = 0; n < header->sh_info; ++n) {
      const auto* version = At<Elf64_Verdef>(file, at);
      const auto* name = At<Elf64_Verdaux>(file, at + version->vd_aux);
      versions[version->vd_ndx] = text(header, name->vda_name);
      at += version->vd_next;
    }
  }
  std::map<std::string, std::string> names;
  EXPECT_TRUE(symbols != nullptr && indices != nullptr) << path;
  if (symbols == nullptr || indices == nullptr) return names;
  for (size_t i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
    const auto* symbol =
        At<Elf64_Sym>(file, symbols->sh_offset + i * sizeof(Elf64_Sym));
    if (symbol->st_shndx == SHN_UNDEF) continue;
    const auto* index =
        At<Elf64_Versym>(file, indices->sh_offset + i * sizeof(Elf64_Versym));
    names[text(symbols, symbol->st_name)] = versions[*index & 0x7fff];
  }
  return names;
}

TEST(Symbols, LibraryExportsTheHeaderAndNothingElse) {
  std::set<std::string> exported;
  for (const auto& [name, version] : ExportedSymbols(INLAY_LIBRARY)) {
    if (name != version) exported.insert(name);
  }
  EXPECT_THAT(exported, ::testing::ContainerEq(DeclaredFunctions()));
  EXPECT_GT(exported.size(), 40u);
}

TEST(Symbols, C99ProgramCallsEveryFunction) {
  const std::string program = ReadFile(SourceDir() + "/tests/api/abi_test.c");
  for (const std::string& name : DeclaredFunctions()) {
    EXPECT_NE(program.find(name + "("), std::string::npos)
        << "abi_test.c does not call " << name;
  }
}

// Every struct with a body: name -> fields.
std::map<std::string, std::vector<std::string>> DeclaredStructs() {
  std::map<std::string, std::vector<std::string>> structs;
  const std::vector<std::string> words = HeaderWords();
  for (size_t i = 0; i + 4 < words.size(); ++i) {
    if (words[i] != "typedef" || words[i + 1] != "struct" ||
        words[i + 3] != "{") {
      continue;
    }
    auto& fields = structs[words[i + 2]];
    // name; and name[4];
    for (i += 4; words[i] != "}" && i + 4 < words.size(); ++i) {
      const bool is_last =
          words[i + 1] == ";" || (words[i + 1] == "[" && words[i + 4] == ";");
      if (IsOfWord(words[i][0]) && is_last) fields.push_back(words[i]);
    }
  }
  return structs;
}

std::map<std::string, int> DeclaredEnums() {
  std::map<std::string, int> values;
  const std::vector<std::string> words = HeaderWords();
  for (size_t i = 0; i + 3 < words.size(); ++i) {
    if (!words[i].starts_with("INLAY_") || words[i + 1] != "=") continue;
    const bool is_negative = words[i + 2] == "-";
    const std::string& value = words[i + (is_negative ? 3 : 2)];
    if (!IsNumber(value)) continue;
    values[words[i]] = (is_negative ? -1 : 1) * std::stoi(value);
  }
  return values;
}

// The tables, oldest first, as one: what the newest header must be.
struct Table {
  struct Field {
    std::string name;
    size_t offset = 0;
    size_t bytes = 0;
    bool operator==(const Field&) const = default;
  };
  struct Struct {
    size_t bytes = 0;         // in the newest version
    size_t before_bytes = 0;  // in the version before; 0: there was none
    std::vector<Field> fields;
  };
  std::map<std::string, int> enums;
  std::map<std::string, std::string> functions;  // name -> version's node
  std::map<std::string, Struct> structs;

  // One call a line of the tables: no strings are made there, which would take
  // a compiler long.
  void AddEnum(const char* name, int value) {
    EXPECT_TRUE(enums.emplace(name, value).second) << name;
  }
  void AddFunction(const char* name, const char* node) {
    EXPECT_TRUE(functions.emplace(name, node).second) << name;
  }
  void AddStruct(const char* name, size_t bytes) {
    EXPECT_TRUE(structs.emplace(name, Struct{bytes, 0, {}}).second) << name;
  }
  void Grow(const char* name, size_t bytes) {
    Struct& grown = structs.at(name);
    EXPECT_GT(bytes, grown.bytes) << name << " must only grow";
    grown.before_bytes = grown.bytes;
    grown.bytes = bytes;
  }
  void AddField(const char* type, const char* field, size_t offset,
                size_t bytes) {
    Struct& of = structs.at(type);
    EXPECT_GE(offset, of.before_bytes)
        << type << "." << field << " lies among what older hosts have";
    EXPECT_LE(offset + bytes, of.bytes);
    of.fields.push_back({field, offset, bytes});
  }
};

Table ReadTables() {
  Table table;
  const char* node = "INLAY_1";
#define INLAY_ABI_ENUM(name, value) table.AddEnum(#name, value);
#define INLAY_ABI_FUNCTION(name) table.AddFunction(#name, node);
#define INLAY_ABI_STRUCT(name, bytes) table.AddStruct(#name, bytes);
#define INLAY_ABI_GROWN(name, bytes) table.Grow(#name, bytes);
#define INLAY_ABI_FIELD(type, field, offset, bytes) \
  table.AddField(#type, #field, offset, bytes);
#include "abi_1.def"
  node = "INLAY_2";
#include "abi_2.def"
  node = "INLAY_3";
#include "abi_3.def"
  node = "INLAY_4";
#include "abi_4.def"
  node = "INLAY_5";
#include "abi_5.def"
  node = "INLAY_6";
#include "abi_6.def"
  node = "INLAY_7";
#include "abi_7.def"
  node = "INLAY_8";
#include "abi_8.def"
  node = "INLAY_9";
#include "abi_9.def"
  node = "INLAY_10";
#include "abi_10.def"
#include "abi_11.def"
  node = "INLAY_12";
#include "abi_12.def"
#include "abi_13.def"
#undef INLAY_ABI_ENUM
#undef INLAY_ABI_FUNCTION
#undef INLAY_ABI_STRUCT
#undef INLAY_ABI_GROWN
#undef INLAY_ABI_FIELD
  return table;
}

// What the header says, and what the tables do; of structs, the newest one that
// has them.
struct Pinned {
  const char* name;
  int64_t value, listed;
};
constexpr int64_t kOfStruct = -1;
#define INLAY_ABI_ENUM(name, value) {#name, name, value},
#define INLAY_ABI_FUNCTION(name)
#define INLAY_ABI_STRUCT(name, listed) {#name, sizeof(name), kOfStruct},
#define INLAY_ABI_GROWN(name, listed)
#define INLAY_ABI_FIELD(type, field, offset, listed)            \
  {#type "." #field " lies at", offsetof(type, field), offset}, \
      {#type "." #field " has bytes", sizeof(type::field), listed},
constexpr Pinned kPinned[] = {
#include "abi_1.def"
#include "abi_2.def"
#include "abi_3.def"
#include "abi_4.def"
#include "abi_5.def"
#include "abi_6.def"
#include "abi_7.def"
#include "abi_8.def"
#include "abi_9.def"
#include "abi_10.def"
#include "abi_11.def"
#include "abi_12.def"
#include "abi_13.def"
};
#undef INLAY_ABI_ENUM
#undef INLAY_ABI_FUNCTION
#undef INLAY_ABI_STRUCT
#undef INLAY_ABI_GROWN
#undef INLAY_ABI_FIELD

TEST(Abi, ValuesArePinned) {
  const Table table = ReadTables();
  for (const Pinned& pinned : kPinned) {
    const auto listed =
        pinned.listed == kOfStruct
            ? static_cast<int64_t>(table.structs.at(pinned.name).bytes)
            : pinned.listed;
    EXPECT_EQ(pinned.value, listed) << pinned.name;
  }
  EXPECT_EQ(INLAY_ABI_VERSION, 13) << "a new version needs its own table";
}

// What the header has and the tables lack would not be pinned; what they have
// and the library does not export would break hosts.
TEST(Abi, TablesAreComplete) {
  const Table table = ReadTables();
  std::map<std::string, std::vector<std::string>> structs;
  for (const auto& [name, listed] : table.structs) {
    for (const Table::Field& field : listed.fields)
      structs[name].push_back(field.name);
  }
  EXPECT_THAT(DeclaredEnums(), ::testing::ContainerEq(table.enums));
  std::set<std::string> functions;
  for (const auto& [name, node] : table.functions) functions.insert(name);
  EXPECT_THAT(DeclaredFunctions(), ::testing::ContainerEq(functions));
  EXPECT_THAT(DeclaredStructs(), ::testing::ContainerEq(structs));
}

// A program that calls what ABI n brought says so by a symbol's version, and an
// older library is refused when it is loaded.
TEST(Abi, SymbolsCarryTheVersionThatBroughtThem) {
  std::map<std::string, std::string> exported;
  for (const auto& [name, version] : ExportedSymbols(INLAY_LIBRARY)) {
    if (name != version) exported[name] = version;
  }
  EXPECT_THAT(exported, ::testing::ContainerEq(ReadTables().functions));
}

TEST(Abi, StatusListAgreesWithTheHeader) {
  std::map<std::string, int> expected;
  for (const auto& [name, value] : DeclaredEnums()) {
    if (std::string(inlay_status_name(value)) == name) expected[name] = value;
  }
  std::map<std::string, int> listed;
  const std::vector<std::string> words = Words(SourceDir() + "/api/status.def");
  for (size_t i = 0; i + 4 < words.size(); ++i) {
    // INLAY_STATUS(name, value, code)
    if (words[i] != "INLAY_STATUS" || !IsNumber(words[i + 4])) continue;
    const std::string name = "INLAY_" + words[i + 2];
    listed[name] = std::stoi(words[i + 4]);
    EXPECT_STREQ(inlay_status_name(listed[name]), name.c_str());
  }
  EXPECT_EQ(listed.size(), size_t{INLAY_INTERNAL} + 1);
  EXPECT_THAT(listed, ::testing::ContainerEq(expected));
  EXPECT_STREQ(inlay_status_name(INLAY_INTERNAL + 1), "unknown status");
}

}  // namespace
}  // namespace inlay::testing

// The binary interface itself: what libinlay.so exports, and that inlay.h is
// laid out as its versions (abi_1.def and on) were released.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <inlay/inlay.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace inlay::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

std::string Header() {
  const std::string text =
      ReadFile(INLAY_SOURCE_DIR "/api/include/inlay/inlay.h");
  return std::regex_replace(text, std::regex(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)"),
                            " ");
}

std::set<std::string> DeclaredFunctions() {
  std::set<std::string> names;
  const std::string header = Header();
  const std::regex pattern(R"(INLAY_API\s[^;]*?(inlay_\w+)\()");
  for (std::sregex_iterator it(header.begin(), header.end(), pattern), end;
       it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

template <typename T>
const T* At(const std::string& file, size_t offset) {
  EXPECT_LE(offset + sizeof(T), file.size());
  return reinterpret_cast<const T*>(file.data() + offset);
}

// The defined symbols of the ELF file's .dynsym.
std::set<std::string> ExportedSymbols(const std::string& path) {
  const std::string file = ReadFile(path);
  std::set<std::string> names;
  const auto* elf = At<Elf64_Ehdr>(file, 0);
  EXPECT_EQ(std::memcmp(elf->e_ident, ELFMAG, SELFMAG), 0) << path;
  for (size_t s = 0; s < elf->e_shnum; ++s) {
    const auto* section =
        At<Elf64_Shdr>(file, elf->e_shoff + s * sizeof(Elf64_Shdr));
    if (section->sh_type != SHT_DYNSYM) continue;
    const auto* strings = At<Elf64_Shdr>(
        file, elf->e_shoff + section->sh_link * sizeof(Elf64_Shdr));
    for (size_t at = 0; at < section->sh_size; at += sizeof(Elf64_Sym)) {
      const auto* symbol = At<Elf64_Sym>(file, section->sh_offset + at);
      if (symbol->st_shndx == SHN_UNDEF) continue;
      names.insert(file.c_str() + strings->sh_offset + symbol->st_name);
    }
  }
  return names;
}

TEST(Symbols, LibraryExportsTheHeaderAndNothingElse) {
  std::set<std::string> exported = ExportedSymbols(INLAY_LIBRARY);
  EXPECT_EQ(exported.erase("INLAY_0"), 1u) << "the version node";
  EXPECT_THAT(exported, ::testing::ContainerEq(DeclaredFunctions()));
  EXPECT_GT(exported.size(), 40u);
}

TEST(Symbols, C99ProgramCallsEveryFunction) {
  const std::string program =
      ReadFile(INLAY_SOURCE_DIR "/tests/api/abi_test.c");
  for (const std::string& name : DeclaredFunctions()) {
    EXPECT_NE(program.find(name + "("), std::string::npos)
        << "abi_test.c does not call " << name;
  }
}

// Every struct with a body: name -> fields.
std::map<std::string, std::vector<std::string>> DeclaredStructs() {
  std::map<std::string, std::vector<std::string>> structs;
  const std::string header = Header();
  const std::regex pattern(R"(typedef struct (\w+) \{([^}]*)\})");
  const std::regex field(R"((\w+)(\[\d+\])?;)");
  for (std::sregex_iterator it(header.begin(), header.end(), pattern), end;
       it != end; ++it) {
    const std::string body = (*it)[2];
    auto& fields = structs[(*it)[1]];
    for (std::sregex_iterator f(body.begin(), body.end(), field); f != end;
         ++f) {
      fields.push_back((*f)[1]);
    }
  }
  return structs;
}

std::map<std::string, int> DeclaredEnums() {
  std::map<std::string, int> values;
  const std::string header = Header();
  const std::regex pattern(R"((INLAY_\w+) = (-?\d+))");
  for (std::sregex_iterator it(header.begin(), header.end(), pattern), end;
       it != end; ++it) {
    values[(*it)[1]] = std::stoi((*it)[2]);
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
  std::set<std::string> functions;
  std::map<std::string, Struct> structs;

  void AddStruct(const std::string& name, size_t bytes) {
    EXPECT_TRUE(structs.emplace(name, Struct{bytes, 0, {}}).second) << name;
  }
  void Grow(const std::string& name, size_t bytes) {
    Struct& grown = structs.at(name);
    EXPECT_GT(bytes, grown.bytes) << name << " must only grow";
    grown.before_bytes = grown.bytes;
    grown.bytes = bytes;
  }
  void AddField(const std::string& type, const Field& field) {
    Struct& of = structs.at(type);
    EXPECT_GE(field.offset, of.before_bytes)
        << type << "." << field.name << " lies among what older hosts have";
    EXPECT_LE(field.offset + field.bytes, of.bytes);
    of.fields.push_back(field);
  }
};

Table ReadTables() {
  Table table;
#define INLAY_ABI_ENUM(name, value) \
  EXPECT_TRUE(table.enums.emplace(#name, value).second) << #name;
#define INLAY_ABI_FUNCTION(name) \
  EXPECT_TRUE(table.functions.insert(#name).second) << #name;
#define INLAY_ABI_STRUCT(name, bytes) table.AddStruct(#name, bytes);
#define INLAY_ABI_GROWN(name, bytes) table.Grow(#name, bytes);
#define INLAY_ABI_FIELD(type, field, offset, bytes) \
  table.AddField(#type, {#field, offset, bytes});
#include "abi_1.def"
#include "abi_2.def"
#include "abi_3.def"
#include "abi_4.def"
#include "abi_5.def"
#include "abi_6.def"
#include "abi_7.def"
#undef INLAY_ABI_ENUM
#undef INLAY_ABI_FUNCTION
#undef INLAY_ABI_STRUCT
#undef INLAY_ABI_GROWN
#undef INLAY_ABI_FIELD
  return table;
}

TEST(Abi, ValuesArePinned) {
  const Table table = ReadTables();
#define INLAY_ABI_ENUM(name, value) EXPECT_EQ(name, value) << #name;
#define INLAY_ABI_FUNCTION(name)
#define INLAY_ABI_STRUCT(name, listed) \
  EXPECT_EQ(sizeof(name), table.structs.at(#name).bytes) << #name;
#define INLAY_ABI_GROWN(name, listed)
#define INLAY_ABI_FIELD(type, field, offset, listed)               \
  EXPECT_EQ(offsetof(type, field), offset##u) << #type "." #field; \
  EXPECT_EQ(sizeof(type::field), listed##u) << #type "." #field;
#include "abi_1.def"
#include "abi_2.def"
#include "abi_3.def"
#include "abi_4.def"
#include "abi_5.def"
#include "abi_6.def"
#include "abi_7.def"
#undef INLAY_ABI_ENUM
#undef INLAY_ABI_FUNCTION
#undef INLAY_ABI_STRUCT
#undef INLAY_ABI_GROWN
#undef INLAY_ABI_FIELD
  EXPECT_EQ(INLAY_ABI_VERSION, 7) << "a new version needs its own table";
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
  EXPECT_THAT(DeclaredFunctions(), ::testing::ContainerEq(table.functions));
  EXPECT_THAT(DeclaredStructs(), ::testing::ContainerEq(structs));
}

TEST(Abi, StatusListAgreesWithTheHeader) {
  std::map<std::string, int> expected;
  for (const auto& [name, value] : DeclaredEnums()) {
    if (std::string(inlay_status_name(value)) == name) expected[name] = value;
  }
  std::map<std::string, int> listed;
  const std::string list = ReadFile(INLAY_SOURCE_DIR "/api/status.def");
  const std::regex pattern(R"(\nINLAY_STATUS\((\w+), (\d+), k\w+\))");
  for (std::sregex_iterator it(list.begin(), list.end(), pattern), end;
       it != end; ++it) {
    const std::string name = "INLAY_" + std::string((*it)[1]);
    listed[name] = std::stoi((*it)[2]);
    EXPECT_STREQ(inlay_status_name(listed[name]), name.c_str());
  }
  EXPECT_EQ(listed.size(), size_t{INLAY_INTERNAL} + 1);
  EXPECT_THAT(listed, ::testing::ContainerEq(expected));
  EXPECT_STREQ(inlay_status_name(INLAY_INTERNAL + 1), "unknown status");
}

}  // namespace
}  // namespace inlay::testing

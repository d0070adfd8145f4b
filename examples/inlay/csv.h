// Tables as text: RFC 4180, with plain newlines.
#ifndef INLAY_EXAMPLES_INLAY_CSV_H_
#define INLAY_EXAMPLES_INLAY_CSV_H_

#include <string>
#include <vector>

#include "examples/inlay/output.h"

namespace inlay::cli {

// A line, quoted where it must be.
std::string CsvLine(const std::vector<std::string>& fields);
// A column for each member of the first row; a member of a member is called
// "outer_inner". Members that a row lacks, and null, are empty.
std::string CsvTable(const std::vector<Json>& rows);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_CSV_H_

// Templates that try to exhaust the host: each must end in a typed error, soon.
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/text/template/chat_template.h"

namespace inlay {
namespace {

std::string Repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// A fraction of the default budgets, so that sanitizers finish soon too.
absl::Status RenderStatus(std::string_view source) {
  TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_memory_bytes = size_t{16} << 20;
  const auto parsed = ChatTemplate::Parse(source, limits);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(OrderedJson{{"x", 1}, {"s", "text"}}, {}).status();
}

void ExpectRefused(std::string_view source, absl::StatusCode code) {
  const absl::Time start = absl::Now();
  const absl::Status status = RenderStatus(source);
  EXPECT_EQ(status.code(), code) << source.substr(0, 120) << "\n" << status;
  // Generous, because sanitizers and busy machines are slow.
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << source.substr(0, 120);
}

TEST(ChatTemplateHostile, DeepNestingInTheSource) {
  for (const auto& [open, middle, close] :
       {std::tuple("(", "1", ")"), std::tuple("[", "1", "]"),
        std::tuple("not ", "1", ""), std::tuple("-", "1", ""),
        std::tuple("{1:", "1", "}"), std::tuple("x[", "1", "]"),
        std::tuple("x(", "1", ")"), std::tuple("x|f(", "1", ")"),
        std::tuple("1 if 1 else ", "1", ""), std::tuple("", "1", " if 1")}) {
    ExpectRefused(
        "{{ " + Repeat(open, 5000) + middle + Repeat(close, 5000) + " }}",
        absl::StatusCode::kResourceExhausted);
  }
  for (const auto& [open, close] :
       {std::pair("{% if 1 %}", "{% endif %}"),
        std::pair("{% for i in s %}", "{% endfor %}"),
        std::pair("{% set a %}", "{% endset %}"),
        std::pair("{% macro m() %}", "{% endmacro %}")}) {
    ExpectRefused(Repeat(open, 3000) + Repeat(close, 3000),
                  absl::StatusCode::kResourceExhausted);
  }
  ExpectRefused(
      "{% set " + Repeat("(", 5000) + "a" + Repeat(")", 5000) + " = 1 %}",
      absl::StatusCode::kResourceExhausted);
}

// The deepest source that is allowed must also evaluate without overflowing the
// stack, macros upon it.
TEST(ChatTemplateHostile, DeepestAllowedNestingInRecursiveMacros) {
  const std::string nested =
      Repeat("{% if 1 %}", 55) + "{{ m(n + 1) }}" + Repeat("{% endif %}", 55);
  ExpectRefused("{% macro m(n) %}" + nested + "{% endmacro %}{{ m(0) }}",
                absl::StatusCode::kResourceExhausted);
  const std::string call = Repeat("[", 50) + "m(n + 1)" + Repeat("]", 50);
  ExpectRefused("{% macro m(n) %}{{ " + call + " }}{% endmacro %}{{ m(0) }}",
                absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateHostile, EndlessRecursion) {
  ExpectRefused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                absl::StatusCode::kResourceExhausted);
  ExpectRefused("{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
                absl::StatusCode::kResourceExhausted);
  ExpectRefused(
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller() }}"
      "{% endmacro %}{% call m() %}{% endcall %}",
      absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateHostile, HugeValuesAreRefusedBeforeTheyAreMade) {
  for (const char* expression :
       {"'a' * 10**9", "10**9 * 'a'", "[1] * 10**9", "(1, 2) * 10**15",
        "range(10**9)", "range(0, 10**18, 1)|list", "'a'.center(10**10)",
        "'a'.zfill(10**10)", "'a'.ljust(10**18)", "'a'|center(10**12)",
        "'%1000000000d' % 1", "'%.999999999f' % 1.5",
        "'{:>1000000000}'.format(1)", "'{:.99999}'.format(1.5)",
        "'a\nb'|indent(10**10)", "[1]|tojson(indent=10**9)",
        "[1]|batch(10**9, 0)|list", "[1]|slice(10**9)|list"}) {
    ExpectRefused(std::string("{{ ") + expression + " }}",
                  absl::StatusCode::kResourceExhausted);
  }
  ExpectRefused("{{ 10**100 }}", absl::StatusCode::kInvalidArgument);
  ExpectRefused("{{ 1" + Repeat("0", 100) + " }}",
                absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateHostile, Doubling) {
  const std::string loop = "{% for i in range(1000) %}";
  for (const char* body :
       {"{% set ns.v = ns.v + ns.v %}", "{% set ns.v = ns.v ~ ns.v %}",
        "{% set ns.v = ns.v * 2 %}", "{% set ns.v = [ns.v, ns.v]|join %}",
        "{% set ns.v = ns.v.join(ns.v|list) %}",
        "{% set ns.v = ns.v|replace('', ns.v) %}"}) {
    ExpectRefused(
        "{% set ns = namespace(v='abcd') %}" + loop + body + "{% endfor %}",
        absl::StatusCode::kResourceExhausted);
  }
}

// A value that shares its parts is small in memory and exponential as a tree.
TEST(ChatTemplateHostile, SharedStructure) {
  const std::string build =
      "{% set ns = namespace(a=[0], b=[0], t=(0,)) %}"
      "{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}";
  for (const char* use :
       {"{{ ns.a == ns.b }}", "{{ ns.a }}", "{{ ns.a|tojson }}",
        "{{ {ns.t: 1} }}", "{{ ns.a < ns.b }}", "{{ ns.a in [ns.b] }}"}) {
    ExpectRefused(build + use, absl::StatusCode::kResourceExhausted);
  }
}

TEST(ChatTemplateHostile, ValuesThatNestWithoutEnd) {
  ExpectRefused(
      "{% set ns = namespace(v=[]) %}{% for i in range(100000) %}"
      "{% set ns.v = [ns.v] %}{% endfor %}",
      absl::StatusCode::kResourceExhausted);
  ExpectRefused(
      "{% set ns = namespace(v={}) %}{% for i in range(100000) %}"
      "{% set ns.v = {1: ns.v|items} %}{% endfor %}",
      absl::StatusCode::kResourceExhausted);
  ExpectRefused("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}",
                absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateHostile, EndlessWork) {
  const std::string r = "range(100000) %}";
  ExpectRefused(
      "{% for a in " + r + "{% for b in " + r + "{% endfor %}" + "{% endfor %}",
      absl::StatusCode::kResourceExhausted);
  ExpectRefused("{% for a in " + r + "{{ s * 10000 }}{% endfor %}",
                absl::StatusCode::kResourceExhausted);
  // Searches that are quadratic when done naively.
  ExpectRefused("{% set t = 'a' * 1000000 %}{% for i in " + r +
                    "{{ t.rfind('a' * 500000 ~ 'b') }}{% endfor %}",
                absl::StatusCode::kResourceExhausted);
  ExpectRefused("{% set t = 'a' * 1000000 %}{% for i in " + r +
                    "{{ t.find('a' * 500000 ~ 'b') }}{% endfor %}",
                absl::StatusCode::kResourceExhausted);
  ExpectRefused("{% set t = 'a' * 1000000 %}{% for i in " + r +
                    "{{ ('a' * 500000 ~ 'b') in t }}{% endfor %}",
                absl::StatusCode::kResourceExhausted);
  ExpectRefused(
      "{% set t = 'a' * 1000000 %}{% set z = (t ~ 'b',) * 50000 %}"
      "{{ (t ~ 'a').startswith(z) }}",
      absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateHostile, BrokenSyntax) {
  for (const char* source : {"{{",
                             "{%",
                             "{#",
                             "{{ 'abc",
                             "{% raw %}",
                             "{% if %}",
                             "{% if 1 %}",
                             "{{ 1 +",
                             "{{ }}",
                             "{% %}",
                             "{{ a.}}",
                             "{{ a[ }}",
                             "{{ ) }}",
                             "{{ '\\x4' }}",
                             "{{ '\\ud800' }}",
                             "{% set = 1 %}",
                             "{% set true = 1 %}",
                             "{% for in x %}{% endfor %}",
                             "{% break %}",
                             "{% nosuchtag %}",
                             "{% endif %}",
                             "{% macro (a) %}{% endmacro %}",
                             "{{ a|}}",
                             "{{ a is }}",
                             "{{ f(a=1, 2) }}",
                             "{{ \x01 }}",
                             "{% if 1 %}{% endfor %}",
                             "{% macro m() %}{% break %}{% endmacro %}"}) {
    ExpectRefused(source, absl::StatusCode::kInvalidArgument);
  }
  ExpectRefused("\xff", absl::StatusCode::kInvalidArgument);
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
        "{% block b %}{% endblock %}",
        "{% for a in [] recursive %}{% endfor %}", "{{ '\\N{DASH}' }}"}) {
    ExpectRefused(source, absl::StatusCode::kUnimplemented);
  }
  ExpectRefused(std::string((1 << 20) + 1, 'a'),
                absl::StatusCode::kResourceExhausted);
}

TEST(ChatTemplateHostile, SandboxRefusesInternalsAndMutation) {
  for (const char* expression :
       {"''.__class__.__mro__", "[].append(1)", "{}.update({})", "[].sort()",
        "{}.pop('a')", "''.format.__globals__.x",
        "'{0.__class__.__init__}'.format(1)", "x.__class__()"}) {
    ExpectRefused(std::string("{{ ") + expression + " }}",
                  absl::StatusCode::kInvalidArgument);
  }
}

TEST(ChatTemplateHostile, VariablesAreChecked) {
  const auto parsed = ChatTemplate::Parse("{{ v }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Render(OrderedJson::array(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parsed->Render({{"v", "\xff"}}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  OrderedJson deep;
  for (int i = 0; i < 200; ++i) deep = OrderedJson::array({deep});
  EXPECT_EQ(parsed->Render({{"v", deep}}, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inlay

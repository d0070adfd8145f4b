#include "kernels/quant/iq_grids.h"

#include <string_view>

namespace inlay {
namespace {

// A codeword is a number whose digits, the first the least significant, choose
// its levels. All grids are in ascending order, so that gaps between numbers
// say it all: a gap of 1 is ']', of 2 '^' and so on to 33; before it, each '!'
// adds 33. The first gap is from -1.
template <size_t kCodewords, size_t kDim, size_t kBase>
constexpr IqGrid<kCodewords, kDim> Expand(std::string_view gaps,
                                          const int8_t (&levels)[kBase]) {
  constexpr int kHalves = IqGrid<kCodewords, kDim>::kHalves;
  IqGrid<kCodewords, kDim> grid = {};
  for (int h = 0; h < kHalves; ++h) {
    int rest = h;
    for (int8_t& level : grid.half_codewords[static_cast<size_t>(h)]) {
      level = levels[rest % static_cast<int>(kBase)];
      rest /= static_cast<int>(kBase);
    }
  }
  size_t c = 0;
  int number = -1;
  for (const char gap : gaps) {
    if (gap == '!') {
      number += 33;
      continue;
    }
    number += gap - ']' + 1;
    grid.halves[c] = {static_cast<uint8_t>(number % kHalves),
                      static_cast<uint8_t>(number / kHalves)};
    for (size_t i = 0; i < kDim; ++i) {
      const size_t half = grid.halves[c][i / (kDim / 2)];
      grid.codewords[c][i] = grid.half_codewords[half][i % (kDim / 2)];
    }
    ++c;
  }
  return grid;
}

constexpr int8_t kLevels1[] = {-1, 0, 1};
constexpr int8_t kLevels2[] = {8, 25, 43};
constexpr int8_t kLevels3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kLevels3S[] = {1, 3, 5, 7, 9, 11, 13, 15};

// clang-format off

constexpr std::string_view kIq2XxsGaps =
    "]^^^^^^b^`^^^bb`^b^bhd^b`jzhh^n!_v^bf^b^`hf^bhb^`hjp^ft^nznb`^bh`^b^rtt!sf"
    "!!`^bfdnhb`jbhndf!kf!mbh`hp!e|!]j!!^^bnxv`!!^!i!g^brld^!md!k^!!j^bnj!cxp!!"
    "zth!k!!!w!o^bb`^bbd`f^bnnxd`tdtdfzbh!_lrf!w!!l^bn`!m!e`f!s|nb`b^!_btv!i!!`"
    "!!j^t!!d!a!efb|!w!w!!hbntz!c!sz!_`!!p^!i!!!!^!!!!!!l^bpxxhh!{!!b^b`jn!_|!]"
    "rpn!a!!l!!r!!dbhb!ir!c!u!mpf!!r!!!!!k!g!!!!j!]rz!!d!!z!!!!!!!}!k";

constexpr std::string_view kIq2XsGaps =
    "]^^^^^^^^^^^^`^^^^^^^`^b^^^`^`^f^^^^^^^^^^b^^^`^bb`^bn^^^`^bf^b`jdp^^^^^^^"
    "`^b^^^`^^`f^bn^^^`^bf^bfdx^bj`^xt^^^^^^b`b^bbhnd^^bnxbpnb!g`f^^^^^^^`^b^^^"
    "`^bd^^bn^^^`^bf^bnh^j^^`nn!_^^^`^bf^`^hbx^bn!qhr!k^b^lhpr`!i!!^!e^^^^^^^bf"
    "^bnnf^bnbl|p!]t`^bl^!qxf|hl!w`b^frpj!uhth!a`^p^^^^^^^`^b^^^^^^b`b^bn^^^`^b"
    "f^bn`ld^b^j^!q^^^`^`^f^bnhl^bhb!gfdrb!i^bn`dd!]fpbl|!!h^^^`^bb`^bnx^b`j^!o"
    "z!m^^bfdnfndb!kb!c|rdhld!]xf^!!!gt^bnhdhp^!!!_jzlj!!fn`!g!!r!o!m!{!]d!]^^^"
    "`^bd^^bn^r^^^^`nfb!an!_^lb`^b^^jnlpz!ip!axblrf^rd!!z!]bdf`^bnjltpx!!dpp`vb"
    "b!{!a^!g!!t!c!a!w|!_^`^fd!i!ib!]`^`pxn!_!c!!!!hppf^`!kbb!q^!i^!al";

constexpr std::string_view kIq2SGaps =
    "]^^^^^^^^^^^^`^^^^^^^`^^^^^^^`^b``^^^^^^^^`^b^^^`^^^^`^`^b^^b^b^^^`^bd^^^^"
    "^`j```dd^^^^^^^`^^^^^^^^^^^^^^^b^^^^`^`^b^^^^^^^^^`^`^^^^^^^`^b^^^`^bf^^^^"
    "`j`^`^bf^bn^^^`^^^^``^^^^^^^^`^b`dj^^b^^^`d`^`^bfdnf^d`^f!]h^^^^^^^`^^`^^^"
    "`^^^^^^^`^^``^`^b^^^^^^^^^^^^`^^^^^^^`^b^^^`^l^`^`b^b`b^l^bn^^^`^^^^`^`^^^"
    "^^^^`^b^^^`^bf^^^^^^^`^b^^^`^bf^bn`^`^bf^bnv^^^^^`^`d^^^`^bf^t^^^`^bf^blrf"
    "bnj!c^^^`^^^^``^^b^^dbd`j^^b^^bd^^b^bf^bndh`^`bt^l`^^^^`^`^b^^^`^bf^bn`^`^"
    "bf^bj`x^bnl!a`b^l^bvn^^b!urhxh^p^^^^^^^^^^^`^^^^^^^^^^^b^b`^`^b^^^`^^^^^^b"
    "^^^^^^^`^b^^^`^bf^b^^^bb`^`^bf^t^^^^^^^^^^^^`^^^^^^^`^b^^^`^bf^^^^^^^`^b^^"
    "^`^bd^^bn^^^`^bf^bnrb^`^^^^`^b^^^`^bhbn^^^`^bf^bnjj^bn!q^^^`^^^^^^^`^^^^^^"
    "^`^b^^^`^l^^^^^^^`^b^^^`^bf^bn`^`^bf^bl^x^^^^^^^`^b^^^`^bf^bn^^^`^bf^bnx^b"
    "j`!q^^^`^bf^bdfx^bn!ql!ep`^^`^^^`^b`^`^bhbn^^^`^bf^bnljbnj|d`^`^bf^bnx^bnd"
    "ljl!}l^b!cphv!!n!gd^^^`^`^`b^b^^^`d`b^l^`^^^^`^b^^^`^l^bl^``^^l^b!i^^^^^^^"
    "`d^^^`^bf^bn^^^`^bf^bndp^bl^!q`b^l^b!ad^tr!or^hnd^`^^^^bb^^^`^bf^bn`b^l^bd"
    "!a^bn!m`^^^`^bf^bnjj^bn!e`d|l!]^bj`!o^!]`!!!cn```db^^b!abxr!]bh`^z`^l`^bn!"
    "]jbl!!!_!ol!m!ipx^f^`!_p";

constexpr std::string_view kIq3XxsGaps =
    "]^^a^`]^ceu^`^a^c`_^cghd^^ac^c^`fbj`b]^g!^opagh^`bol!nsp`^qjl^a^c^a^^g]t^c"
    "c^!j^a^cc!]b^jeilg`!^!c`noh!!gj|^c^a^`_e{^^_^ccw`]d^cb]^i]ipc`!g`}jtpfw!!_"
    "^gsxc^c^qiab^jeg^w^aiqlkn!xkobbhw{nq!cqpgj^h`!!gpk]lbmz{!`g}jq!!g_^j!mssdb"
    "ls{j|d!dyg`!^ds!!i!gj!ml^jy|z!`!_b!!`}!`!l!cj!m^^]nl!gf!ewarijq}l{^n!!^";

constexpr std::string_view kIq3SGaps =
    "]]]_^]]]^^^]`ba^_^^^a^c__]]]^`]`__`^`ci`ab]`^]___`_`b_^^^i_db`_^c^_b`^i^`_"
    "g`^_bb_bkf^h^`ab`^kag_^jmkc^^h^`ai`p]]^`]^^^]^c_^j^_eb]^_^`ac_bc^jb^f_^]`b"
    "b_f_fc__]_bb]`ambg^a^i^c`^`qc_bc^k!b`_i^w^a^ch`mbd]^^^]^^^_^`]^c^^_^i]_^_^"
    "b_`__`_bct__f^ac^f`f_`^_`e^a^cbjgbe_c_`u_caei]gid^afx`p`i^gavc^^^_c^^a^_^f"
    "bd^^ca^ilf`^fbf^huc`a^`]e^`bjdba`cmb`ic^gaffioo|^i^g!^`bb`__cclfa^^cbabb`p"
    "^aa`fak_bha^a^c`!^^ng]uh^f}umptaggbub`bj`__hba^^ace|befabisa]kiahbb_hfh!_h"
    "o^!r|^j!r^^h^qllcyrnbgabdhak!pjkj_upqw!d^!p`_e^h^hblcgk^x_`b_cmut_jr`bat!e"
    "l|s!b";

constexpr std::string_view kIq1Gaps =
    "]^^^^^_a^`^ab^^da^`^aa^`^`]b^^^]ab`^`^`^^^]cb^^da^`^aa^`^abba`^^`^^__^^`^g"
    "^^dbbb``]kbbb^]]d^^d^``]]^]]^^^^^^^e_^^^^]]^j`h^b^^^_]`^bb^`g^`^aa^`^ab`da"
    "^`^aa^`^ab^`a]bd]_b^`h^^^ba^`^aa^`^abb__a^^^^aa^`^f]^`a]b^b`^`^]_h^^a_b^^^"
    "^^^^`^`b`]]]]]]^^`dd^b^l^^daa^`^^^`^db^^db`^a]^]_`a_]]^^^]]^`^^b`^_]^]]^^]"
    "_`^`^^]]^^^^^^^^]]a]]]]^]^^]]^^^]]^^]]^]]^]]^^b^]]d]]^^``^]]^^^_]]]_^]^]]b"
    "__^d`h`db^^^^`^^]]^^^bb^fj^^`^_c]]^`^]]^]]``d_]^^``^ecc^c^^^^^^``^bb`_f^`^"
    "aa^^^^abb__a^`^aa^^^^ab^`bc]`b^^^^]]daa^bba^^_a^`^ab`^bba^^_a^`^ad^^bd]]^`"
    "^^^bdb^`__hbbb^`^`^]_`^^f^_]^^^^^^ba^abbbba]ba^`df^`^aa^`^ab^fa^`^f^`^d_^`"
    "bf^`^b^^^baa^a]a^`^f^`^ab`^ba^`^aa^`^ab`dh`^^^^^^l`_``]^^^`^]]^^`^b^^^^]]^"
    "]a^^^^^`^^a]]gb^^dbf^```eafbh_eb^^^^]]a]^^^^`^^^^a]b_]^`^^]]^^``^^]]^^]^]]"
    "]]_^]]^`]]^`^]]^]a^^^__a]^^^^`^^^^_]]^]^`^^`_``]b^^db_`aca^`^`^^^bb^^^bb_]"
    "_]_]^`^^```^]]]]^^^^]_b^`^]]`^^^ll^^b^^``jfb^]]^`^`^^`^`^`^]]^b^d^b^_]`^b^"
    "]]^^]]]]^`]]^^^]]^^]]]]]]]]^^]]^`^b^]]^^``^`b^`^^d^`^^]]^`^ea^^_]`e]b^]]]]"
    "__^^^^]]^]]]^]]]]]^]]]]^^b^^^]]^_^]`^]]]]^^]]]]]^]^^]]^^]]]]]]]^]]]]]]]]]]"
    "^]]]]]^^]_]]]^]]]]_^]]^^]]]^]]_^]^]^]]]]]]]__]]]]]]]]]]]]]^^]_`^]]]]^_`_^]"
    "]]a]]^^`^`ca^^^^]]]]^^]]ca^^^^`b_]^`^^]]^bb^]]^^]]]]]]]]^^]]^____^]]]]bd_c"
    "`]`]^b^]__]]]`^^^^c_^]]^^hd^^bdb`]]^^^^^_idb^^^`^b]_^b___]^b]_`a_^b`^h`^g]"
    "`d]]_ib`dk]^]_^`^^^^^^^^]]^]]^^d]_^^]]]]^^^`b^^^_]^j]]^^]^]]^_^]]^c^]^_]^]"
    "_^]]aabaa]]^`^^^^]]]^]`^_^^``^]]^_^_k^bbf^`^bbbada^b`b^^^^]_]]`^]]^^``_]aa"
    "b^]_h`]i^`^`^^`]_cc_^b`^`^f^`^aa]^^^ba^`^aa^`^ab^^^bb^`^^^]]]a^^b_a^^ba^`^"
    "aa^`^g^`ba^`^aa^`^i`h^c_`^^`j`hb`^`b^^]_^`^]]^]a]]^^^^^^^^^dj`^bb^`]]`_]^`"
    "_abc`b^`^aa^`^^_b^`b_^^`^aa^`^a]a^^db^^^^^^`^^ff^ba^`^aa^`^ab^^i^`^aa^`^ab"
    "`]]bb`^b^^d]ab^^^bb^^^^`^^^^^^^`a]^]]^`^d^b^^`^^^bb^`bd^^^^^^d^bd^g_^^``^d"
    "`d^^]]]]^]]^d^b]]^`b^`^^]]^]]^___]^^]]^^]]]]]]]]^^]]^__^`]]]]^]]^^^^^^b`_^"
    "a^b^]_]^]^b^a]`]_]]d^^bf^bb``^^]_`]eb`^bd^^^^^^^]]^^`^^^^^^]]^`^]_^^b^^`^`"
    "deed^^^`^`hb^]]i^`^aa^`^ab^^^g^`^aa^`^a__^^^]k^__^^^^fa^_^i`^]c``^ab`^ba^`"
    "^aa^`^mbb^b_]^^^_]]]bx^^^^^d^`^b^]]^b`^^]]^`^^lb`_^_d^__^]]_^h``]^_^^`^`^f"
    "^`^g^^^g^`^aa^`^ad`__bd``^`^gai^`^f^`^g^^i^`^aa^`^";
// clang-format on

}  // namespace

constexpr IqGrid<256, 8> kIq2XxsGrid = Expand<256, 8>(kIq2XxsGaps, kLevels2);
constexpr IqGrid<512, 8> kIq2XsGrid = Expand<512, 8>(kIq2XsGaps, kLevels2);
constexpr IqGrid<1024, 8> kIq2SGrid = Expand<1024, 8>(kIq2SGaps, kLevels2);
constexpr IqGrid<256, 4> kIq3XxsGrid = Expand<256, 4>(kIq3XxsGaps, kLevels3Xxs);
constexpr IqGrid<512, 4> kIq3SGrid = Expand<512, 4>(kIq3SGaps, kLevels3S);
constexpr IqGrid<2048, 8> kIq1Grid = Expand<2048, 8>(kIq1Gaps, kLevels1);

}  // namespace inlay

// Package expression compiles the regular expressions of users. It bounds what one expression costs, and equal
// expressions
// share their memory. How much all expressions of a container may cost is for the caller.
package expression

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"
	"weak"
)

// The limits of an expression. A program of MaxSize instructions has about a megabyte.
const (
	// MaxLength is in bytes.
	MaxLength = 8 << 10
	// MaxSize is in instructions: a{1,500} has about as many as aa…a with 500 letters.
	MaxSize = 10_000
	// MaxClasses is the number of character classes such as \pL, which have thousands of characters.
	MaxClasses = 16
)

// runesPerInstruction is how many runes of a character class count as an instruction, because they need as much memory.
const runesPerInstruction = 8

// Compile returns the compiled expression, which may be in use elsewhere too. Returns an error if the expression is
// invalid, or exceeds a limit.
func Compile(text string) (*regexp.Regexp, error) {
	if known, ok := shared.Load(text); ok {
		if re := known.(weak.Pointer[regexp.Regexp]).Value(); re != nil {
			return re, nil
		}
	}
	if _, err := Size(text); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	pointer := weak.Make(re)
	shared.Store(text, pointer)
	runtime.AddCleanup(re, func(text string) { shared.CompareAndDelete(text, pointer) }, text)
	return re, nil
}

// shared has the compiled expressions that are in use, by their texts: they do not change, and are safe for
// concurrent use.
var shared sync.Map

// Size returns about how many instructions the compiled expression has. It does not compile it. Returns an error as
// Compile does.
func Size(text string) (int, error) {
	if len(text) > MaxLength {
		return 0, fmt.Errorf("the regular expression has %d bytes: want at most %d", len(text), MaxLength)
	}
	if n := classes(text); n > MaxClasses {
		return 0, fmt.Errorf("the regular expression has %d large character classes, such as \\pL: want at most %d",
			n, MaxClasses)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, err
	}
	size := sizeOf(parsed)
	if size > MaxSize {
		return 0, fmt.Errorf("the regular expression needs about %d instructions: want at most %d: write smaller counts, as in "+
			"[a-z]+ instead of [a-z]{1,1000}", size, MaxSize)
	}
	return size, nil
}

// Sum returns the sizes of the expressions together. It reads no further when they are more than most.
func Sum(most int, expressions []string) (sum int) {
	for _, text := range expressions {
		if sum > most {
			return sum + 1
		}
		size, err := Size(text)
		if err != nil {
			size = Effort(text)
		}
		sum += size
	}
	return sum
}

// Effort returns how many instructions could be compiled in the time and memory that it takes to find out that the
// text is
// no valid expression.
func Effort(text string) int { return 100 + 500*min(classes(text), MaxClasses) }

// classes returns how many character classes of the text may be large: those by their Unicode property, and those in
// which
// the parser may have to find other cases of characters outside ASCII.
func classes(text string) int {
	n := strings.Count(text, `\p`) + strings.Count(text, `\P`)
	if strings.Contains(text, "(?") && (strings.Contains(text, `\x`) || !isASCII(text)) {
		n += strings.Count(text, "[")
	}
	return n
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// sizeOf returns the instructions of a parsed expression. Its depth is limited by the parser.
func sizeOf(e *syntax.Regexp) int {
	size := 1
	switch e.Op {
	case syntax.OpLiteral:
		size = len(e.Rune)
	case syntax.OpCharClass:
		size += len(e.Rune) / runesPerInstruction
	case syntax.OpCapture:
		size = 2 // its begin and its end
	}
	for _, sub := range e.Sub {
		size += sizeOf(sub)
	}
	if e.Op == syntax.OpRepeat {
		size *= max(e.Max, e.Min+1)
	}
	return size
}

package rule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"fairlead/internal/expression"
)

// maxDepth limits how deep parentheses and negations are nested.
const maxDepth = 100

// Parse parses the rule of an HTTP router in the syntax "v2" or "v3". If the syntax is
// empty, it is v3, or v2 for a rule that has what only v2 knows: a matcher, a number of
// arguments, or a template such as {name:[a-z]+}. Returns an *Error for faulty rules.
func Parse(text, syntax string) (*Rule, error) { return compiled(Read(text, syntax)) }

// Read parses a rule as Parse does, and does not compile its regular expressions: the rule must not be matched. It
// is for
// those who only want to know what is in it, and what it would cost.
func Read(text, syntax string) (*Rule, error) { return parseAs(text, syntax, false) }

// ParseTCP parses the rule of a TCP router as Parse does that of an HTTP router.
func ParseTCP(text, syntax string) (*Rule, error) { return compiled(ReadTCP(text, syntax)) }

// ReadTCP parses the rule of a TCP router as Read does that of an HTTP router.
func ReadTCP(text, syntax string) (*Rule, error) { return parseAs(text, syntax, true) }

// compiled compiles the regular expressions of a rule.
func compiled(r *Rule, err error) (*Rule, error) {
	if err == nil {
		err = r.compile()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func parseAs(text, syntax string, tcp bool) (*Rule, error) {
	switch syntax {
	case "v2", "v3":
		return parse(text, syntax, tcp, false)
	case "":
	default:
		return nil, fmt.Errorf("parse rule: unknown syntax %q: want v2 or v3", syntax)
	}
	r, err := parse(text, "v3", tcp, true)
	var v3 *Error
	if !errors.As(err, &v3) || !v3.otherSyntax {
		return r, err
	}
	r, err = parse(text, "v2", tcp, true)
	if v2, ok := errors.AsType[*Error](err); ok && v2.Column <= v3.Column && (v2.unknown || !v3.unknown) {
		return nil, v3
	}
	return r, err
}

// parser reads a rule from left to right.
type parser struct {
	text   string
	offset int
	depth  int
	set    *matcherSet
	// guess says that the rule may be in another syntax.
	guess    bool
	warnings []string
	// size are the instructions of the regular expressions up to here.
	size int
}

func parse(text, syntax string, tcp, guess bool) (*Rule, error) {
	p := &parser{text: text, set: sets[setKey{syntax, tcp}], guess: guess}
	if p.space(); p.offset == len(text) {
		return nil, p.fail(0, "the rule is empty")
	}
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.offset < len(text) {
		return nil, p.unexpected("&&, || or the end of the rule")
	}
	r := &Rule{root: root, length: len(text), syntax: syntax, tcp: tcp, warnings: p.warnings, size: p.size}
	if hosts, ok := r.Hosts(); ok && len(hosts) == 0 {
		r.warnings = append(r.warnings, "the rule never matches: no host satisfies all of its matchers")
	}
	return r, nil
}

func (p *parser) or() (*node, error) { return p.operands(or, "||", p.and) }

func (p *parser) and() (*node, error) { return p.operands(and, "&&", p.unary) }

// operands reads one or more operands with the operator between them.
func (p *parser) operands(op operator, sign string, operand func() (*node, error)) (*node, error) {
	var kids []*node
	for {
		n, err := operand()
		if err != nil {
			return nil, err
		}
		kids = append(kids, n)
		if !p.take(sign) {
			return combine(op, kids...), nil
		}
	}
}

func (p *parser) unary() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.offset, "parentheses and negations are nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.take("!"):
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return combine(not, n), nil
	case p.take("("):
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.unexpected("&&, || or )")
		}
		return n, nil
	}
	return p.call()
}

// call reads NAME(ARGUMENTS) and compiles the matcher.
func (p *parser) call() (*node, error) {
	start := p.offset
	for p.offset < len(p.text) && isLetter(p.text[p.offset]) {
		p.offset++
	}
	name := p.text[start:p.offset]
	if name == "" {
		return nil, p.unexpected("a matcher, ! or (")
	}
	p.space()
	k, err := p.set.find(name)
	if err != nil {
		return nil, p.failOther(start, true, "%v", err)
	}
	if !p.take("(") {
		return nil, p.unexpected("( after " + name)
	}
	args, columns, err := p.arguments()
	if err != nil {
		return nil, err
	}
	if err := k.check(len(args), p.set.syntax); err != nil {
		return nil, p.failOther(start, false, "%v", err)
	}
	return p.compile(k, args, columns)
}

// arguments reads quoted texts up to the closing parenthesis, and their offsets.
func (p *parser) arguments() (args []string, offsets []int, err error) {
	for !p.take(")") {
		if len(args) > 0 && !p.take(",") {
			return nil, nil, p.unexpected(", or )")
		}
		if len(args) > 0 && p.take(")") {
			break
		}
		offset := p.offset
		a, err := p.quoted()
		if err != nil {
			return nil, nil, err
		}
		if a == "" {
			return nil, nil, p.fail(offset, "the argument is empty")
		}
		args, offsets = append(args, a), append(offsets, offset)
	}
	return args, offsets, nil
}

// quoted reads a text in backticks, or in double quotes with Go's escapes.
func (p *parser) quoted() (string, error) {
	rest := p.text[p.offset:]
	switch {
	case strings.HasPrefix(rest, "`"):
		inner, _, ok := strings.Cut(rest[1:], "`")
		if !ok {
			return "", p.fail(p.offset, "the text has no closing backtick")
		}
		p.offset += len(inner) + 2
		p.space()
		return inner, nil
	case strings.HasPrefix(rest, `"`):
		q, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return "", p.fail(p.offset, "the text has no closing double quote, or an escape that is unknown:"+
				" write it in backticks")
		}
		p.offset += len(q)
		p.space()
		return strconv.Unquote(q)
	case strings.HasPrefix(rest, "'"):
		return "", p.fail(p.offset, "a text is in backticks or double quotes, not in single quotes")
	}
	return "", p.unexpected("a text in backticks or double quotes")
}

func (p *parser) compile(k *kind, args []string, offsets []int) (*node, error) {
	m := &matcher{kind: k, args: args}
	if p.guess && p.set.syntax == "v3" && k.templates {
		for i, a := range args {
			if hasTemplate(a) {
				return nil, p.failOther(offsets[i], false, "%s takes no template in v3", k.name)
			}
		}
	}
	var err error
	if m.tests, err = k.build(args); err != nil {
		at := offsets[0]
		if arg, ok := errors.AsType[*argumentError](err); ok {
			at = offsets[arg.index]
		}
		return nil, p.fail(at, "%s: %v", k.name, err)
	}
	for _, t := range m.tests {
		for _, v := range t.values {
			p.size += v.size
		}
	}
	if p.size > expression.MaxSize {
		return nil, p.fail(offsets[0],
			"the regular expressions of the rule need more than %d instructions: divide it among "+
				"several routers", expression.MaxSize)
	}
	p.warnings = append(p.warnings, m.warn(p.set.syntax)...)
	return &node{leaf: m}, nil
}

// take skips the sign and the white space after it, if the sign is next.
func (p *parser) take(sign string) bool {
	if !strings.HasPrefix(p.text[p.offset:], sign) {
		return false
	}
	p.offset += len(sign)
	p.space()
	return true
}

func (p *parser) space() {
	for p.offset < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.offset]) >= 0 {
		p.offset++
	}
}

func (p *parser) unexpected(want string) error {
	if p.offset == len(p.text) {
		return p.fail(p.offset, "the rule ends too early: want %s", want)
	}
	c, _ := utf8.DecodeRuneInString(p.text[p.offset:])
	if unicode.IsLetter(c) {
		word := strings.FieldsFunc(p.text[p.offset:], func(r rune) bool { return !unicode.IsLetter(r) })[0]
		if sign := map[string]string{"and": "&&", "or": "||", "not": "!"}[strings.ToLower(word)]; sign != "" {
			return p.fail(p.offset, "unexpected %s: write %s", word, sign)
		}
		return p.fail(p.offset, "unexpected %s: want %s", word, want)
	}
	return p.fail(p.offset, "unexpected %q: want %s", string(c), want)
}

func (p *parser) fail(offset int, format string, args ...any) error {
	return &Error{Column: utf8.RuneCountInString(p.text[:offset]) + 1, Problem: fmt.Sprintf(format, args...)}
}

// failOther returns an error of a rule that may be valid in v2.
func (p *parser) failOther(offset int, unknown bool, format string, args ...any) error {
	return &Error{Column: utf8.RuneCountInString(p.text[:offset]) + 1, Problem: fmt.Sprintf(format, args...),
		otherSyntax: true, unknown: unknown}
}

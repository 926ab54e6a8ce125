package importer

import (
	"slices"
	"strings"
)

// block is a keyword of keepalived.conf(5) with its words, and with the blocks in its
// braces, if it has any. It records which of its words have been read, so that the
// others can be reported (Imported.unread).
type block struct {
	line  int
	words []string
	read  []bool
	// braced means that braces follow, which can be empty.
	braced bool
	body   []block
}

func (b block) keyword() string {
	b.read[0] = true
	return b.words[0]
}

// word returns the i-th word after the keyword, or "" if there is none.
func (b block) word(i int) string {
	if i+1 < len(b.words) {
		b.read[i+1] = true
		return b.words[i+1]
	}
	return ""
}

// rest returns the words after the keyword.
func (b block) rest() string {
	for i := range b.read {
		b.read[i] = true
	}
	return strings.Join(b.words[1:], " ")
}

// skip reports a statement that is not imported.
func (i *Imported) skip(b block) {
	i.report(b.line, "%s: not imported", strings.TrimSpace(b.keyword()+" "+b.rest()))
}

// unread reports all words of the block, and of the blocks within it, that have not
// been read. Thus the importer never drops unknown words silently. A block that has
// been reported as a whole is skipped.
func (i *Imported) unread(b block) {
	if slices.ContainsFunc(i.Reports, func(l Report) bool { return l.Line == b.line }) {
		return
	}
	if at := slices.Index(b.read, false); at >= 0 {
		i.report(b.line, "%s: %q is not imported", b.words[0], strings.Join(b.words[at:], " "))
	}
	for _, within := range b.body {
		i.unread(within)
	}
}

// token is a word, a brace, or the end of a line.
type token struct {
	line int
	text string
	// quoted means that it is a word, whatever its text is.
	quoted bool
}

const newline = "\n"

// tokens splits a configuration. Words are separated by blanks; a quoted word can
// contain blanks. A comment begins with ! or #.
func tokens(text []byte) []token {
	var all []token
	for n, line := range linesOf(text) {
		for rest := strings.TrimLeft(line, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
			if rest[0] == '!' || rest[0] == '#' {
				break
			}
			if quote := rest[0]; quote == '"' || quote == '\'' {
				word, after, _ := strings.Cut(rest[1:], string(quote))
				all, rest = append(all, token{n + 1, word, true}), after
				continue
			}
			end := strings.IndexAny(rest, " \t{}!#\"")
			switch {
			case end < 0:
				end = len(rest)
			case end == 0:
				end = 1
			}
			all, rest = append(all, token{n + 1, rest[:end], false}), rest[end:]
		}
		all = append(all, token{n + 1, newline, false})
	}
	return all
}

// maxDepth is the maximum nesting of blocks. Real configurations need four levels.
const maxDepth = 16

// blocks builds blocks from tokens, and reports braces that do not match. A brace can
// be on the line after its keyword.
func blocks(all []token) (body []block, unmatched []Report) {
	var root block
	open := []*block{&root}
	var now *block
	for _, t := range all {
		into := open[len(open)-1]
		switch {
		case t.text == newline && !t.quoted:
			now = nil
		case t.text == "{" && !t.quoted:
			if len(into.body) > 0 && len(open) < maxDepth {
				last := &into.body[len(into.body)-1]
				last.braced = true
				open = append(open, last)
			}
			now = nil
		case t.text == "}" && !t.quoted:
			if len(open) > 1 {
				open = open[:len(open)-1]
			} else if unmatched == nil {
				unmatched = append(unmatched, Report{t.line, "}: no brace is open: the lines above may be read " +
					"differently than intended"})
			}
			now = nil
		case now == nil:
			into.body = append(into.body, block{line: t.line, words: []string{t.text}, read: []bool{false}})
			now = &into.body[len(into.body)-1]
		default:
			now.words, now.read = append(now.words, t.text), append(now.read, false)
		}
	}
	for _, b := range open[1:] {
		unmatched = append(unmatched, Report{b.line, printable(b.keyword()) + ": its brace is not closed: the " +
			"following lines are read as part of it"})
	}
	return root.body, unmatched
}

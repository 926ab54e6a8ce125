package rule

import (
	"strconv"
	"strings"
)

// operator says what a node does with its children.
type operator byte

const (
	leaf operator = iota
	not
	and
	or
)

// node is a rule or a part of it. The children of and are no and, those of or are no or,
// the child of not is no not.
type node struct {
	op   operator
	kids []*node
	leaf *matcher
}

// matcher is a call, such as Host(`a`): all of its tests must succeed.
type matcher struct {
	kind  *kind
	args  []string
	tests []test
}

func (n *node) match(q *Request) bool {
	switch n.op {
	case and:
		for _, k := range n.kids {
			if !k.match(q) {
				return false
			}
		}
		return true
	case or:
		for _, k := range n.kids {
			if k.match(q) {
				return true
			}
		}
		return false
	case not:
		return !n.kids[0].match(q)
	}
	for i := range n.leaf.tests {
		if !n.leaf.tests[i].match(q) {
			return false
		}
	}
	return true
}

// combine returns the node of the operator and its children, without needless levels.
func combine(op operator, kids ...*node) *node {
	if op != not && len(kids) == 1 || op == not && kids[0].op == not {
		n := kids[0]
		if op == not {
			n = n.kids[0]
		}
		return n
	}
	n := &node{op: op}
	for _, k := range kids {
		if k.op == op {
			n.kids = append(n.kids, k.kids...)
		} else {
			n.kids = append(n.kids, k)
		}
	}
	return n
}

// visit calls f for each matcher. Positive says that the matcher is below an even
// number of negations.
func (n *node) visit(positive bool, f func(m *matcher, positive bool)) {
	if n.op == leaf {
		f(n.leaf, positive)
	}
	for _, k := range n.kids {
		k.visit(positive != (n.op == not), f)
	}
}

func (n *node) write(b *strings.Builder) {
	switch n.op {
	case leaf:
		b.WriteString(n.leaf.String())
	case not:
		b.WriteByte('!')
		n.kids[0].writeIn(not, b)
	case and, or:
		for i, k := range n.kids {
			if i > 0 {
				b.WriteString(map[operator]string{and: " && ", or: " || "}[n.op])
			}
			k.writeIn(n.op, b)
		}
	}
}

// writeIn writes the node as a child of the operator: in parentheses where the child
// binds less tightly.
func (n *node) writeIn(op operator, b *strings.Builder) {
	if op == or || n.op == leaf || n.op == not {
		n.write(b)
		return
	}
	b.WriteByte('(')
	n.write(b)
	b.WriteByte(')')
}

func (m *matcher) String() string {
	quoted := make([]string, len(m.args))
	for i, a := range m.args {
		if quoted[i] = "`" + a + "`"; strings.Contains(a, "`") {
			quoted[i] = strconv.Quote(a)
		}
	}
	return m.kind.name + "(" + strings.Join(quoted, ", ") + ")"
}

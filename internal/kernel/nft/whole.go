package nft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// comments returns the user data of every rule of a table, by chain and in order.
// The user data contains the comment. The result is empty if the table is missing.
func (r reader) comments(t *nftables.Table) (map[string][][]byte, error) {
	list, err := r.rules(t.Family, t.Name)
	if err != nil {
		return nil, err
	}
	found := map[string][][]byte{}
	for _, rule := range list {
		found[rule.chain] = append(found[rule.chain], rule.data)
	}
	return found, nil
}

// isWhole reports whether the table has the chains of its definition: each with its hook and policy, and
// with the expected number of rules, all with Fairlead's mark. comments are the rules'.
func (r reader) isWhole(d definition, comments map[string][][]byte) (bool, error) {
	for _, ch := range d.chains {
		if !haveComment(comments[ch.name], plan.Mark, len(ch.rules)) {
			return false, nil
		}
		is, err := r.chain(d.Table, ch.name)
		if err != nil {
			return false, missing(err)
		}
		if !ch.hasHook(is.Chain) {
			return false, nil
		}
	}
	return true, nil
}

// readWhole reads the table, and reports whether it is complete: see isWhole.
func (r reader) readWhole(d definition) (bool, error) {
	comments, err := r.comments(d.Table)
	if err != nil || len(comments) == 0 {
		return false, err
	}
	return r.isWhole(d, comments)
}

// hasHook reports whether the kernel's chain is called where this one is, and accepts
// packets that no rule decides about.
func (ch chain) hasHook(is *nftables.Chain) bool {
	if ch.hook == nil || is.Hooknum == nil || is.Priority == nil {
		return ch.hook == nil && is.Hooknum == nil
	}
	return *is.Hooknum == *ch.hook && *is.Priority == ch.prio && is.Type == ch.kind &&
		is.Policy != nil && *is.Policy == nftables.ChainPolicyAccept
}

// haveComment reports whether there are n rules, all with the comment.
func haveComment(rules [][]byte, comment string, n int) bool {
	mark := append([]byte(comment), 0)
	return len(rules) == n && !slices.ContainsFunc(rules, func(data []byte) bool { return !bytes.Contains(data, mark) })
}

// missing turns "not found" and ErrMalformed into no error: the caller then reports
// the table as absent, and it is created again.
func missing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, ErrMalformed) {
		return nil
	}
	return fmt.Errorf("read nft table: %w", err)
}

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
)

// ErrMalformed means that data in the kernel's nftables cannot be read. The kernel
// stores the user data of rules and elements without a check.
var ErrMalformed = errors.New("malformed data in nftables")

// carefulNft is a connection whose readers accept any user data. Other programs
// store that data, in a sandbox the root of that sandbox. The library reads it
// without checks and panics on malformed data; these readers return errMalformed
// instead. The library parses only after it has read all messages, so that the
// connection can serve the next request.
type carefulNft struct{ *nftables.Conn }

// malformed sets err to errMalformed if the caller panics. It must be deferred.
func malformed(what string, err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("%w: %s: %v", ErrMalformed, what, why)
	}
}

// ListChains is that of nftables.Conn, but returns errMalformed instead of a panic.
func (c carefulNft) ListChains() (all []*nftables.Chain, err error) {
	defer malformed("chains", &err)
	return c.Conn.ListChains()
}

// ListChainsOfTableFamily is that of nftables.Conn, but returns errMalformed
// instead of a panic.
func (c carefulNft) ListChainsOfTableFamily(f nftables.TableFamily) (all []*nftables.Chain, err error) {
	defer malformed("chains", &err)
	return c.Conn.ListChainsOfTableFamily(f)
}

// GetRules is that of nftables.Conn, but returns errMalformed instead of a panic.
func (c carefulNft) GetRules(t *nftables.Table, ch *nftables.Chain) (all []*nftables.Rule, err error) {
	defer malformed("chain "+ch.Name, &err)
	return c.Conn.GetRules(t, ch)
}

// GetSets is that of nftables.Conn, but returns errMalformed instead of a panic.
func (c carefulNft) GetSets(t *nftables.Table) (all []*nftables.Set, err error) {
	defer malformed("sets of "+t.Name, &err)
	return c.Conn.GetSets(t)
}

// GetSetElements is that of nftables.Conn, but returns errMalformed instead of a
// panic. It also returns errMalformed if an element is shorter than the types of
// the set require: another set may have the same name.
func (c carefulNft) GetSetElements(s *nftables.Set) (all []nftables.SetElement, err error) {
	defer malformed("set "+s.Name, &err)
	if all, err = c.Conn.GetSetElements(s); err != nil {
		return nil, err
	}
	for _, e := range all {
		key, value := int(s.KeyType.Bytes), int(s.DataType.Bytes)
		short := len(e.Key) < key || s.Interval && s.Concatenation && len(e.KeyEnd) < key ||
			s.IsMap && s.DataType != nftables.TypeVerdict && len(e.Val) < value
		if short && !e.IntervalEnd {
			return nil, fmt.Errorf("%w: an element of set %s is too short", ErrMalformed, s.Name)
		}
	}
	return all, nil
}

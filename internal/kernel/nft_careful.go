package kernel

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
)

// errMalformed means that what the kernel holds for nftables cannot be read. The
// kernel stores what users attach to rules and elements without looking at it.
var errMalformed = errors.New("malformed data in nftables")

// carefulNft is a connection whose readers expect data that others have stored,
// in a sandbox by root there. The library indexes into it unchecked and panics; the
// readers return errMalformed instead. They parse when they have read everything,
// so that the connection is good for the next request.
type carefulNft struct{ *nftables.Conn }

// malformed turns a panic into errMalformed.
func malformed(what string, err *error) {
	if why := recover(); why != nil {
		*err = fmt.Errorf("%w: %s: %v", errMalformed, what, why)
	}
}

// ListChains is the library's.
func (c carefulNft) ListChains() (all []*nftables.Chain, err error) {
	defer malformed("chains", &err)
	return c.Conn.ListChains()
}

// ListChainsOfTableFamily is the library's.
func (c carefulNft) ListChainsOfTableFamily(f nftables.TableFamily) (all []*nftables.Chain, err error) {
	defer malformed("chains", &err)
	return c.Conn.ListChainsOfTableFamily(f)
}

// GetRules is the library's.
func (c carefulNft) GetRules(t *nftables.Table, ch *nftables.Chain) (all []*nftables.Rule, err error) {
	defer malformed("chain "+ch.Name, &err)
	return c.Conn.GetRules(t, ch)
}

// GetSets is the library's.
func (c carefulNft) GetSets(t *nftables.Table) (all []*nftables.Set, err error) {
	defer malformed("sets of "+t.Name, &err)
	return c.Conn.GetSets(t)
}

// GetSetElements is the library's, and makes sure that the elements are as long as
// those of the set are, if it says how long these are: another set may have its
// name.
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
			return nil, fmt.Errorf("%w: an element of set %s is too short", errMalformed, s.Name)
		}
	}
	return all, nil
}

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead/internal/kernel/nlutil"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrMalformed means that a set of Fairlead's does not have the type that Fairlead
// gave it.
var ErrMalformed = errors.New("malformed data in nftables")

// reader reads nftables. Other programs, and root of a sandbox, have put anything
// there that the kernel accepts, so no content is an error: attributes that the
// reader does not know, or that have another length, are left out.
type reader struct{ *nlutil.Conn }

// nfgenLen is the length in bytes of a struct nfgenmsg, the header of all
// netfilter messages.
const nfgenLen = 4

// Attributes and flags that x/sys/unix lacks (linux/netfilter/nf_tables.h).
const (
	tableDormant    = 1    // NFT_TABLE_F_DORMANT
	hookDevices     = 4    // NFTA_HOOK_DEVS
	setElementExprs = 11   // NFTA_SET_ELEM_EXPRESSIONS
	setConcat       = 0x80 // NFT_SET_CONCAT
	allFamilies     = nftables.TableFamilyUnspecified
)

// request returns the body of a request about the objects with these names: of a
// table, and of a chain or set in it.
func request(family nftables.TableFamily, names ...string) []byte {
	body := []byte{byte(family), unix.NFNETLINK_V0, 0, 0}
	for i, name := range names {
		body = append(body, nl.NewRtAttr(i+1, nl.ZeroTerminated(name)).Serialize()...)
	}
	return body
}

// dump calls take with the attributes of each object. If it returns
// nl.ErrDumpInterrupted, some objects may be missing.
func (r reader) dump(kind int, body []byte, take func(family nftables.TableFamily, attrs []byte)) error {
	list, err := r.Dump(unix.NFNL_SUBSYS_NFTABLES<<8|kind, body)
	for _, m := range list {
		if len(m) >= nfgenLen {
			take(nftables.TableFamily(m[0]), m[nfgenLen:])
		}
	}
	return err
}

// find returns unix.ENOENT if the table does not exist.
func (r reader) find(t *nftables.Table) error {
	_, err := r.Request(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, 0, request(t.Family, t.Name))
	return err
}

// generation returns the number of the ruleset, which the kernel increases with each
// transaction of any program.
func (r reader) generation() (id uint32, err error) {
	list, err := r.Request(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, request(allFamilies))
	if err != nil || len(list) != 1 || len(list[0]) < nfgenLen {
		return 0, fmt.Errorf("read the generation of nftables: %w", errors.Join(err, unix.ENODATA))
	}
	return uint32Of(nlutil.Attribute(list[0][nfgenLen:], unix.NFTA_GEN_ID)), nil
}

// tables returns the tables of the family.
func (r reader) tables(family nftables.TableFamily) ([]*nftables.Table, error) {
	var all []*nftables.Table
	err := r.dump(unix.NFT_MSG_GETTABLE, request(family), func(family nftables.TableFamily, attrs []byte) {
		all = append(all, &nftables.Table{Family: family, Name: nlutil.Text(attrs, unix.NFTA_TABLE_NAME),
			Flags: uint32(nlutil.Number(attrs, unix.NFTA_TABLE_FLAGS))})
	})
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", err)
	}
	return all, nil
}

// foundChain is a chain with the links of its hook at ingress or egress.
type foundChain struct {
	*nftables.Chain
	links []string
}

// chain returns the chain with this name, or unix.ENOENT.
func (r reader) chain(t *nftables.Table, name string) (foundChain, error) {
	body := append(request(t.Family, t.Name),
		nl.NewRtAttr(unix.NFTA_CHAIN_NAME, nl.ZeroTerminated(name)).Serialize()...)
	list, err := r.Request(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, 0, body)
	if err == nil && (len(list) != 1 || len(list[0]) < nfgenLen) {
		err = errors.New("the kernel gives no answer")
	}
	if err != nil {
		return foundChain{}, fmt.Errorf("read nft chain %s: %w", name, err)
	}
	return decodeChain(t.Family, list[0][nfgenLen:]), nil
}

// chains returns the chains of the family.
func (r reader) chains(family nftables.TableFamily) ([]foundChain, error) {
	var all []foundChain
	err := r.dump(unix.NFT_MSG_GETCHAIN, request(family), func(family nftables.TableFamily, attrs []byte) {
		all = append(all, decodeChain(family, attrs))
	})
	if err != nil {
		err = fmt.Errorf("list nft chains: %w", err)
	}
	return all, err
}

func decodeChain(family nftables.TableFamily, attrs []byte) foundChain {
	c := foundChain{Chain: &nftables.Chain{Name: nlutil.Text(attrs, unix.NFTA_CHAIN_NAME),
		Type:  nftables.ChainType(nlutil.Text(attrs, unix.NFTA_CHAIN_TYPE)),
		Table: &nftables.Table{Family: family, Name: nlutil.Text(attrs, unix.NFTA_CHAIN_TABLE)}}}
	if policy := nlutil.Attribute(attrs, unix.NFTA_CHAIN_POLICY); policy != nil {
		c.Policy = new(nftables.ChainPolicy(uint32Of(policy)))
	}
	nlutil.Attributes(nlutil.Attribute(attrs, unix.NFTA_CHAIN_HOOK), c.takeHook)
	slices.Sort(c.links)
	c.links = slices.Compact(c.links)
	return c
}

func (c *foundChain) takeHook(kind uint16, value []byte) {
	switch kind {
	case unix.NFTA_HOOK_HOOKNUM:
		c.Hooknum = nftables.ChainHookRef(nftables.ChainHook(uint32Of(value)))
	case unix.NFTA_HOOK_PRIORITY:
		c.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(int32(uint32Of(value))))
	case unix.NFTA_HOOK_DEV:
		c.links = append(c.links, unix.ByteSliceToString(value))
	case hookDevices:
		nlutil.Attributes(value, func(_ uint16, name []byte) {
			c.links = append(c.links, unix.ByteSliceToString(name))
		})
	}
}

// foundRule is a rule whose expressions are not decoded yet.
type foundRule struct {
	family       nftables.TableFamily
	table, chain string
	handle       uint64
	data, exprs  []byte
}

// rules returns the rules of the family: all, or those in the table and chain with
// these names.
func (r reader) rules(family nftables.TableFamily, names ...string) ([]foundRule, error) {
	var all []foundRule
	err := r.dump(unix.NFT_MSG_GETRULE, request(family, names...), func(family nftables.TableFamily, attrs []byte) {
		all = append(all, foundRule{family, nlutil.Text(attrs, unix.NFTA_RULE_TABLE),
			nlutil.Text(attrs, unix.NFTA_RULE_CHAIN), nlutil.Number(attrs, unix.NFTA_RULE_HANDLE),
			nlutil.Attribute(attrs, unix.NFTA_RULE_USERDATA), nlutil.Attribute(attrs, unix.NFTA_RULE_EXPRESSIONS)})
	})
	if err != nil {
		err = fmt.Errorf("list nft rules: %w", err)
	}
	return all, err
}

// sets returns the names of the sets and maps in the table.
func (r reader) sets(t *nftables.Table) (names []string, err error) {
	err = r.dump(unix.NFT_MSG_GETSET, request(t.Family, t.Name), func(_ nftables.TableFamily, attrs []byte) {
		names = append(names, nlutil.Text(attrs, unix.NFTA_SET_NAME))
	})
	if err != nil {
		return nil, fmt.Errorf("list nft sets: %w", err)
	}
	return names, nil
}

// intervals returns the sets and maps of all families whose elements are the ends of intervals.
func (r reader) intervals() (map[nftChain]bool, error) {
	all := map[nftChain]bool{}
	err := r.dump(unix.NFT_MSG_GETSET, request(allFamilies), func(family nftables.TableFamily, attrs []byte) {
		flags := nlutil.Number(attrs, unix.NFTA_SET_FLAGS)
		all[nftChain{family, nlutil.Text(attrs, unix.NFTA_SET_TABLE), nlutil.Text(attrs, unix.NFTA_SET_NAME)}] =
			flags&(unix.NFT_SET_INTERVAL|setConcat) == unix.NFT_SET_INTERVAL
	})
	if err != nil {
		err = fmt.Errorf("list nft sets: %w", err)
	}
	return all, err
}

// elements returns the elements of a set or map. It returns ErrMalformed if an
// element is shorter than the types of s require: another set may have the same
// name.
func (r reader) elements(s *nftables.Set) ([]nftables.SetElement, error) {
	var all []nftables.SetElement
	body := request(s.Table.Family, s.Table.Name, s.Name)
	err := r.dump(unix.NFT_MSG_GETSETELEM, body, func(family nftables.TableFamily, attrs []byte) {
		nlutil.Attributes(nlutil.Attribute(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS),
			func(_ uint16, attrs []byte) { all = append(all, decodeSetElement(family, attrs)) })
	})
	if err != nil {
		return nil, fmt.Errorf("read nft set %s: %w", s.Name, err)
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

func decodeSetElement(family nftables.TableFamily, attrs []byte) (e nftables.SetElement) {
	nlutil.Attributes(attrs, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = dataOf(value)
		case nftSetElemKeyEnd:
			e.KeyEnd = dataOf(value)
		case unix.NFTA_SET_ELEM_DATA:
			e.Val = dataOf(value)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.IntervalEnd = uint32Of(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = time.Duration(uint64Of(value)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = time.Duration(max(uint64Of(value), 1)) * time.Millisecond
		case unix.NFTA_SET_ELEM_EXPR:
			takeCounter(&e, decodeExpression(family, value))
		case setElementExprs:
			nlutil.Attributes(value, func(_ uint16, one []byte) { takeCounter(&e, decodeExpression(family, one)) })
		}
	})
	return e
}

func takeCounter(e *nftables.SetElement, of expr.Any) {
	if c, ok := of.(*expr.Counter); ok {
		e.Counter = c
	}
}

// dataOf returns the value, or the attributes of the verdict, in a nested attribute.
func dataOf(attr []byte) []byte {
	if data := nlutil.Attribute(attr, unix.NFTA_DATA_VALUE); data != nil {
		return data
	}
	return nlutil.Attribute(attr, unix.NFTA_DATA_VERDICT)
}

// uint32Of and uint64Of return a number in network byte order, or 0 if the value has
// another length.
func uint32Of(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func uint64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

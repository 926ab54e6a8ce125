package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// Attributes and flags of linux/netfilter/nf_tables.h that the imported packages
// lack.
const (
	nftSetExpr       = 17 // NFTA_SET_EXPR
	nftSetElemKeyEnd = 10 // NFTA_SET_ELEM_KEY_END
	nftSetDescConcat = 2  // NFTA_SET_DESC_CONCAT
	nftSetConcat     = 0x80
)

// listLen limits a list of elements in bytes. The length field has 16 bits; the
// difference leaves room for one more element.
const listLen = 1<<16 - 1024

// addSet adds an empty set or map.
func (b *batch) addSet(s *nftables.Set) { b.addTypeOf(s, nil) }

// addTypeOf adds an empty set or map. typeOf is user data that describes its
// type to nft(8) as the type of an expression; it is nil if the type has a name.
func (b *batch) addTypeOf(s *nftables.Set, typeOf []byte) {
	b.sets++
	b.step(unix.NFT_MSG_NEWSET, toMake, s.Table, s.Name, func() {
		b.number(unix.NFTA_SET_FLAGS, setFlags(s))
		b.number(unix.NFTA_SET_KEY_TYPE, s.KeyType.GetNFTMagic())
		b.number(unix.NFTA_SET_KEY_LEN, s.KeyType.Bytes)
		b.number(unix.NFTA_SET_ID, b.sets)
		if s.IsMap {
			data := s.DataType.GetNFTMagic()
			if s.DataType == nftables.TypeVerdict {
				data = unix.NFT_DATA_VERDICT
			}
			b.number(unix.NFTA_SET_DATA_TYPE, data)
			b.number(unix.NFTA_SET_DATA_LEN, s.DataType.Bytes)
		}
		if s.Size > 0 || s.Concatenation {
			b.nest(unix.NFTA_SET_DESC, func() { b.describe(s) })
		}
		if data := append(keyOrder(s), typeOf...); len(data) > 0 {
			b.attr(unix.NFTA_SET_USERDATA, data)
		}
		if s.Counter {
			b.nest(nftSetExpr, func() {
				b.text(unix.NFTA_EXPR_NAME, "counter")
				b.nest(unix.NFTA_EXPR_DATA, nothing)
			})
		}
	})
}

func setFlags(s *nftables.Set) (flags uint32) {
	for flag, has := range map[uint32]bool{unix.NFT_SET_INTERVAL: s.Interval, unix.NFT_SET_MAP: s.IsMap,
		unix.NFT_SET_TIMEOUT: s.HasTimeout,
		unix.NFT_SET_EVAL:    s.Dynamic, nftSetConcat: s.Concatenation} {
		if has {
			flags |= flag
		}
	}
	return flags
}

// describe adds the size of the set, and the length of each field of its keys,
// without which nft(8) fails.
func (b *batch) describe(s *nftables.Set) {
	if s.Size > 0 {
		b.number(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if !s.Concatenation {
		return
	}
	b.nest(nftSetDescConcat, func() {
		for _, field := range nftables.ConcatSetTypeElements(s.KeyType) {
			b.nest(unix.NFTA_LIST_ELEM, func() { b.number(unix.NFTA_DATA_VALUE, field.Bytes) })
		}
	})
}

// keyOrder returns user data that describes the byte order of the keys to nft(8).
func keyOrder(s *nftables.Set) []byte {
	const host, network = 1, 2
	switch {
	case s.Interval:
		return userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, network)
	case s.KeyByteOrder == binaryutil.NativeEndian:
		return userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, host)
	}
	return nil
}

func (b *batch) delSet(t *nftables.Table, name string) {
	b.step(unix.NFT_MSG_DELSET, toDrop, t, name, nothing)
}

// addElements adds elements to a set; existing ones stay unchanged.
func (b *batch) addElements(s *nftables.Set, all []nftables.SetElement) {
	b.elements(unix.NFT_MSG_NEWSETELEM, toMake, s, all)
}

// delElements deletes elements; the transaction fails if one does not exist.
func (b *batch) delElements(s *nftables.Set, all []nftables.SetElement) {
	b.elements(unix.NFT_MSG_DELSETELEM, toDrop, s, all)
}

func (b *batch) elements(kind, flags uint16, s *nftables.Set, all []nftables.SetElement) {
	b.lists(kind, flags, s, len(all), func(i int) { b.element(&all[i], kind == unix.NFT_MSG_NEWSETELEM) })
}

// lists adds as many messages as count elements need. The function write writes
// the element with the given index.
func (b *batch) lists(kind, flags uint16, s *nftables.Set, count int, write func(int)) {
	for i := 0; i < count; {
		b.step(kind, flags, s.Table, s.Name, func() {
			b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
				for begin := len(b.buf); i < count && len(b.buf)-begin < listLen; i++ {
					write(i)
				}
			})
		})
	}
}

// element adds one element, with its data if value is set.
func (b *batch) element(e *nftables.SetElement, value bool) {
	at := b.begin(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
	b.value(unix.NFTA_SET_ELEM_KEY, e.Key)
	if len(e.KeyEnd) > 0 {
		b.value(nftSetElemKeyEnd, e.KeyEnd)
	}
	switch {
	case !value:
	case e.VerdictData != nil:
		b.nest(unix.NFTA_SET_ELEM_DATA, func() {
			b.nest(unix.NFTA_DATA_VERDICT, func() {
				b.number(unix.NFTA_VERDICT_CODE, uint32(e.VerdictData.Kind))
				if e.VerdictData.Chain != "" {
					b.text(unix.NFTA_VERDICT_CHAIN, e.VerdictData.Chain)
				}
			})
		})
	case len(e.Val) > 0:
		b.value(unix.NFTA_SET_ELEM_DATA, e.Val)
	}
	b.end(at)
}

// value adds data in the nested form that the kernel requires.
func (b *batch) value(kind uint16, data []byte) {
	at := b.messages.begin(kind | unix.NLA_F_NESTED)
	b.attr(unix.NFTA_DATA_VALUE, data)
	b.end(at)
}

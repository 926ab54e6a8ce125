package kernel

import (
	"encoding/binary"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables/userdata"
)

// Theory of operation. The kernel keeps a type of a map's keys as a number. That of
// the buckets, which a hash or a counter chooses, has no name of its own: nft(8)
// calls it what it is the type of (`typeof numgen inc mod 251`), and must be told
// of which expression, in user data that the kernel keeps with the map, or it
// prints a map that it cannot read again. These are its numbers: attributes of a
// byte for the kind, one for the length, and numbers in the host's order
// (libnftnl's udata.h; nftables' enum expr_types and enum proto_desc_id).

// Expressions, and the attributes within them.
const (
	typeofExpr = 0 // which expression
	typeofData = 1 // what it is of

	exprPayload = 7
	exprConcat  = 13
	exprNumgen  = 23

	numgenType   = 0
	numgenMod    = 1
	numgenOffset = 2

	payloadProto = 0
	payloadField = 1
)

// Protocols and their fields.
const (
	descUDP = 6
	descTCP = 8
	descIP  = 12
	descIP6 = 13

	fieldDstPort = 2 // of both
	fieldIPDst   = 12
	fieldIP6Dst  = 9
)

// bucketType says what the map of a service's buckets is of:
// `typeof numgen inc mod N : ip daddr . tcp dport`.
func bucketType(s plan.NFTService) []byte {
	counter := expression(exprNumgen, numbers(numgenType, 0, numgenMod, uint32(s.Ring.Len()), numgenOffset, 0))
	real := packetField(descIP, fieldIPDst)
	if !s.Is4() {
		real = packetField(descIP6, fieldIP6Dst)
	}
	if !s.KeepsPort() {
		proto := uint32(descTCP)
		if s.Proto == model.UDP {
			proto = descUDP
		}
		// The fields of a concatenation are numbered.
		fields := userdata.Append(nil, 0, real)
		real = expression(exprConcat, userdata.Append(fields, 1, packetField(proto, fieldDstPort)))
	}
	data := userdata.Append(nil, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, counter)
	return userdata.Append(data, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, real)
}

func packetField(proto, field uint32) []byte {
	return expression(exprPayload, numbers(payloadProto, proto, payloadField, field))
}

func expression(kind uint32, of []byte) []byte {
	return userdata.Append(numbers(typeofExpr, kind), typeofData, of)
}

// numbers are attributes, each after its kind.
func numbers(all ...uint32) (data []byte) {
	for i := 0; i < len(all); i += 2 {
		data = userdata.Append(data, userdata.Type(all[i]), binary.NativeEndian.AppendUint32(nil, all[i+1]))
	}
	return data
}

package nft

import (
	"encoding/binary"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/nftables/userdata"
)

// Theory of operation. The kernel stores the type of a map's keys as a number. The
// type of a bucket number, which a hash or a counter computes, has no name. nft(8)
// names it by an expression of that type (`typeof numgen inc mod 251`). It needs a
// description of that expression in the user data that the kernel stores with the
// map; without it, nft(8) prints a map that it cannot read again. The description
// consists of attributes: one byte for the kind, one byte for the length, and
// numbers in host byte order (libnftnl's udata.h; nftables' enum expr_types and
// enum proto_desc_id).

// Expressions, and the attributes within them.
const (
	typeofExpr = 0 // the kind of expression
	typeofData = 1 // its parameters

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

	fieldDstPort = 2 // of UDP and TCP
	fieldIPDst   = 12
	fieldIP6Dst  = 9
)

// bucketType describes the type of a service's map of buckets:
// `typeof numgen inc mod N : ip daddr . tcp dport`.
func bucketType(s plan.NFTService) []byte {
	counter := expression(exprNumgen, numbers(numgenType, 0, numgenMod, uint32(len(s.Ring)), numgenOffset, 0))
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

func expression(kind uint32, parameters []byte) []byte {
	return userdata.Append(numbers(typeofExpr, kind), typeofData, parameters)
}

// numbers encodes attributes, given as pairs of a kind and a number.
func numbers(all ...uint32) (data []byte) {
	for i := 0; i < len(all); i += 2 {
		data = userdata.Append(data, userdata.Type(all[i]), binary.NativeEndian.AppendUint32(nil, all[i+1]))
	}
	return data
}

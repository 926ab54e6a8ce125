package ipvs

// The name and version of the generic netlink family (linux/ip_vs.h).
const (
	familyName = "IPVS"
	version    = 1
)

// IPVS_CMD_…
const (
	cmdNewService = iota + 1
	cmdSetService
	cmdDelService
	cmdGetService
	cmdNewDest
	cmdSetDest
	cmdDelDest
	cmdGetDest
)

// IPVS_CMD_ATTR_…
const (
	attrService = iota + 1
	attrDest
)

// IPVS_SVC_ATTR_…
const (
	serviceFamily = iota + 1
	serviceProtocol
	serviceAddr
	servicePort
	serviceMark
	serviceScheduler
	serviceFlags
	serviceTimeout
	serviceNetmask
	_ // counters of 32 bits
	servicePE
	serviceStats64
)

// IPVS_DEST_ATTR_…
const (
	destAddr = iota + 1
	destPort
	destForward
	destWeight
	destUpper
	destLower
	destActive
	destInactive
	destPersistent
	_ // counters of 32 bits
	destFamily
	destStats64
	destTunnelType
	destTunnelPort
	destTunnelFlags
)

// IPVS_STATS_ATTR_…
const (
	statsConns = iota + 1
	statsInPackets
	statsOutPackets
	statsInBytes
	statsOutBytes
)

// The flags of a service, IP_VS_SVC_F_…. Fallback and Ports are flags of the
// schedulers sh and mh (IP_VS_SVC_F_SCHED1 and 2): with Fallback they choose
// another server if the chosen one has weight 0, and with Ports the hash includes
// the client's port.
const (
	Persistent = 0x1
	hashed     = 0x2 // the kernel's own
	OnePacket  = 0x4
	Fallback   = 0x8
	Ports      = 0x10
)

// The forwarding methods, IP_VS_CONN_F_….
const (
	NAT    = 0
	Local  = 1
	Tunnel = 2
	Direct = 3

	forwardMask = 7
)

// The types of tunnels, IP_VS_CONN_F_TUNNEL_TYPE_…
const (
	IPIP = 0
	GUE  = 1
)

// The flags of a tunnel, IP_VS_TUNNEL_ENCAP_FLAG_…. ipvsadm(8) treats them as
// alternatives, and has no others.
const (
	TunnelSummed       = 0x1
	TunnelRemoteSummed = 0x2
)

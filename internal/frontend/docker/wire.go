package docker

import "encoding/json"

// The messages on the socket, with Docker's names. Fields that this package does
// not need are left out; the supported engines differ in them.

// The keys of options.
const (
	keyPrefix      = "com.docker.network."
	keyGeneric     = keyPrefix + "generic"
	keyInternal    = keyPrefix + "internal"
	keyPortMap     = keyPrefix + "portmap"
	keyGateway     = keyPrefix + "gateway"
	keyInterface   = keyPrefix + "endpoint.ifname"
	keyNoProxy6To4 = keyPrefix + "driver.private.no_proxy_6to4"
)

type nothing struct{}

// failure is the response of a method that fails. Docker reads Err from network
// drivers and Error from IPAM drivers.
type failure struct{ Err, Error string }

type activation struct{ Implements []string }

type networkCapabilities struct {
	Scope, ConnectivityScope string
	GwAllocChecker           bool
}

// options are decoded one by one, because their types differ.
type options map[string]json.RawMessage

// flag returns a Boolean option; false if it is missing or has another type.
func (o options) flag(key string) bool {
	var on bool
	return json.Unmarshal(o[key], &on) == nil && on
}

// text returns a string option; "" if it is missing or has another type.
func (o options) text(key string) string {
	var word string
	if json.Unmarshal(o[key], &word) != nil {
		return ""
	}
	return word
}

type gwAllocRequest struct{ Options options }

type gwAllocResponse struct{ SkipIPv4, SkipIPv6 bool }

// ipamData is a range of a network with its reserved addresses. All have prefix
// lengths.
type ipamData struct {
	AddressSpace, Pool, Gateway string
	AuxAddresses                map[string]string
}

type networkRequest struct {
	NetworkID          string
	Options            options
	IPv4Data, IPv6Data []ipamData
}

// endpointInterface has addresses with their prefix lengths.
type endpointInterface struct {
	Address     string `json:",omitempty"`
	AddressIPv6 string `json:",omitempty"`
	MacAddress  string `json:",omitempty"`
}

type endpointRequest struct {
	NetworkID, EndpointID string
	// SandboxKey is the path of the network namespace in a call of Join.
	SandboxKey string
	Interface  endpointInterface
	Options    options
}

type endpointResponse struct{ Interface endpointInterface }

type operInfo struct{ Value map[string]any }

type interfaceName struct {
	SrcName, DstPrefix string
	// DstName is the interface's name for engines that support it. Other engines
	// make a name from DstPrefix.
	DstName string `json:",omitempty"`
}

// The types of a route.
const (
	routeNextHop   = 0
	routeConnected = 1
)

type staticRoute struct {
	Destination string
	RouteType   int
	NextHop     string `json:",omitempty"`
}

type joinResponse struct {
	InterfaceName         interfaceName
	Gateway               string        `json:",omitempty"`
	GatewayIPv6           string        `json:",omitempty"`
	StaticRoutes          []staticRoute `json:",omitempty"`
	DisableGatewayService bool
}

// binding is a published port: the container port, and the host port. The host
// port is one port, any port of a range, or any port if HostPort is 0.
type binding struct {
	Proto                 uint8
	Port                  uint16
	HostIP                string
	HostPort, HostPortEnd uint16
}

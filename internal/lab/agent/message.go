package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/site"
	"fairlead/internal/lab/visitor"
)

// The limits of a message in bytes: of the greeting, before the other side has proved
// anything, and of all others.
const (
	maxGreeting = 4 << 10
	maxMessage  = 4 << 20
)

// greeting is the laboratory's first message.
type greeting struct {
	Version string
	Secret  []byte
	// Shared is described at runner.Options.
	Shared bool
}

// answer is the agent's answer to it. Refused is the reason if the laboratory may not
// use the agent.
type answer struct {
	Version string
	Refused string `json:",omitempty"`
	// Met is the process id of another laboratory on the machine, if both share it.
	Met []int `json:",omitempty"`
}

// The calls.
const (
	doDescribe    = "describe"
	doUnavailable = "unavailable"
	doBuild       = "build"
	doPrepare     = "prepare"
	doBegin       = "begin"
	doEnd         = "end"
	doMemory      = "memory"
	doProve       = "prove"
	doServe       = "serve"
	doEndServe    = "end serve"
	doDrive       = "drive"
	doOpenSite    = "open site"
	doCountSite   = "count site"
	doCloseSite   = "close site"
	doVisit       = "visit"
	doClose       = "close"
	doLoad        = "load"
)

// call is a request to the agent. Do determines which fields are set.
type call struct {
	Do      string
	Part    int             `json:",omitempty"`
	Path    string          `json:",omitempty"`
	Family  result.Family   `json:",omitempty"`
	Order   machine.Order   `json:",omitzero"`
	Client  result.Client   `json:",omitempty"`
	Traffic machine.Traffic `json:",omitzero"`
	// Server selects the server's generator of a part, and not that of Client.
	Server bool `json:",omitempty"`
	// Tool and Workload are for doServe and doDrive, Workload also for doOpenSite.
	// Seconds is how long doDrive and doVisit may take longer than other calls.
	Tool     string `json:",omitempty"`
	Workload string `json:",omitempty"`
	Seconds  int    `json:",omitempty"`
	// Visits is for doVisit.
	Visits visitor.Order `json:",omitzero"`
	// Paths and Tools are for doDescribe.
	Paths []string `json:",omitempty"`
	Tools []string `json:",omitempty"`
}

// reply is the result of a call.
type reply struct {
	Error   string          `json:",omitempty"`
	Machine result.Machine  `json:",omitzero"`
	Why     string          `json:",omitempty"`
	Part    int             `json:",omitempty"`
	Server  bool            `json:",omitempty"`
	Clients []result.Client `json:",omitempty"`
	// FlowAddrs is described at machine.Part.
	FlowAddrs []netip.Addr  `json:",omitempty"`
	Ledger    result.Ledger `json:",omitzero"`
	Gates     ledger.Gates  `json:",omitzero"`
	Memory    float64       `json:",omitempty"`
	Proof     *result.Proof `json:",omitempty"`
	// Output is what a tool's client has printed.
	Output []byte `json:",omitempty"`
	// Site and Counters are those of a web site.
	Site     site.Entry     `json:",omitzero"`
	Counters site.Counters  `json:",omitzero"`
	Visits   visitor.Visits `json:",omitzero"`
}

// send writes a message: its length in four bytes, and JSON.
func send(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// receive reads a message of at most limit bytes.
func receive(r io.Reader, limit uint32, message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > limit {
		return fmt.Errorf("a message of %d bytes is longer than %d", size, limit)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, message)
}

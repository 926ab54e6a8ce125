package ebpf

import (
	"bufio"
	"fmt"
	"io"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf/link"
)

// listBuffer is what the kernel lists at most at once.
const listBuffer = 1 << 15

// Incomplete lists the sockets of the host's own processes that are connected to an
// endpoint to which what they had dialled leads no more: as one struct
// inet_diag_req_v2 for each, by which sock_diag knows it. Where they are
// hundreds, one can be missing: the kernel lists them in parts, begins each by
// counting up to where it was, and so passes over a socket if one before it has
// gone meanwhile.
func (p *Datapath) Incomplete() ([]byte, error) {
	prog, err := p.program(bpf.FairleadProgFlSockIter)
	if err != nil {
		return nil, err
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog, Map: p.maps[bpf.FairleadMapFlDialled]})
	if err != nil {
		return nil, fmt.Errorf("attach eBPF iterator: %w", err)
	}
	defer it.Close()
	list, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("open eBPF iterator: %w", err)
	}
	defer list.Close()
	return io.ReadAll(bufio.NewReaderSize(list, listBuffer))
}

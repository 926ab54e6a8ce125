package bpf

import (
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// keep is how long after its last use a decoded object stays in memory. A data path loads its maps and the kinds of its
// programs one after the other, mostly within this time.
const keep = time.Minute

// recent are the decoded objects. On a host with many modules, decoding takes longer than the verification.
var recent struct {
	mu       sync.Mutex
	uses     int
	fairlead *ebpf.CollectionSpec
	kernel   *btf.Cache
}

// Fairlead returns the programs and maps of the data path. The caller may change them. It is safe for concurrent use.
func Fairlead() (*ebpf.CollectionSpec, error) {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	use()
	if recent.fairlead == nil {
		var err error
		if recent.fairlead, err = LoadFairlead(); err != nil {
			return nil, err
		}
	}
	return recent.fairlead.Copy(), nil
}

// Load loads programs and maps around existing maps. It decodes the types of the kernel, which the programs read, but not
// those of its modules. It is safe for concurrent use.
func Load(spec *ebpf.CollectionSpec, existing map[string]*ebpf.Map) (*ebpf.Collection, error) {
	options := ebpf.CollectionOptions{MapReplacements: existing, Cache: kernelTypes()}
	if len(spec.Programs) > 0 {
		// Without types, programs that read none can be loaded, and the error of the others says so.
		options.Programs.KernelTypes, _ = options.Cache.Kernel()
	}
	return ebpf.NewCollectionWithOptions(spec, options)
}

func kernelTypes() *btf.Cache {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	use()
	if recent.kernel == nil {
		recent.kernel = btf.NewCache()
	}
	return recent.kernel
}

// use lets the objects stay in memory until keep after the last use. The mutex must be locked.
func use() {
	recent.uses++
	uses := recent.uses
	time.AfterFunc(keep, func() {
		recent.mu.Lock()
		defer recent.mu.Unlock()
		if recent.uses == uses {
			recent.fairlead, recent.kernel = nil, nil
		}
	})
}

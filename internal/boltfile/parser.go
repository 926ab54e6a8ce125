package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	bbolterrors "go.etcd.io/bbolt/errors"
)

// parser reads the tree of a file. Each page is read at most once, so a damaged tree cannot make it loop.
type parser struct {
	file io.ReaderAt
	size int64
	meta meta
	seen map[uint64]bool
	// visit gets each value. What it gets is valid during the call only.
	visit func(table, key, value []byte) error
	// skip gets each damage that is skipped. If it is nil, the first damage ends the parser.
	skip func(error)
}

func newParser(file *os.File) (*parser, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return &parser{file: file, size: info.Size(), seen: map[uint64]bool{}}, nil
}

// failed handles a damage.
func (p *parser) failed(err error) error {
	if err != nil && p.skip != nil {
		p.skip(err)
		return nil
	}
	return err
}

// errMetas is the cause if the meta pages are not of consecutive transactions.
var errMetas = errors.New("the meta pages do not belong together")

// readMetas reads both meta pages, and uses the newer one. Returns bbolt's ErrInvalid if none can be read.
func (p *parser) readMetas() error {
	if err := p.anyMeta(); err != nil {
		return err
	}
	first, err := readMeta(p.file, 0, 0)
	if err != nil {
		return err
	}
	second, err := readMeta(p.file, 1, first.pageSize)
	if err != nil {
		return err
	}
	newer, older := max(first.tx, second.tx), min(first.tx, second.tx)
	// bbolt's copies have the newer transaction in the first page. The next one, if it is even, leaves a gap.
	if first.pageSize != second.pageSize || newer == older || newer-older > 2 {
		return errMetas
	}
	p.meta = first
	if second.tx > first.tx {
		p.meta = second
	}
	return nil
}

// anyMeta uses the newer one of the meta pages that can be read.
func (p *parser) anyMeta() error {
	err := bbolterrors.ErrInvalid
	for size := int64(minPageSize); size <= maxPageSize; size *= 2 {
		for id := range uint64(metaPages) {
			m, failed := readMeta(p.file, id, int64(id)*size)
			if failed == nil && m.pageSize == size && (err != nil || m.tx > p.meta.tx) {
				p.meta, err = m, nil
			}
		}
	}
	return err
}

// tables reads the tables of the root.
func (p *parser) tables() error {
	return p.tree(p.meta.root, nil, nil, true, func(e element) error {
		if e.flags != bucketFlag {
			return p.failed(fmt.Errorf("%s is not a table", shown(e.key)))
		}
		return p.failed(p.table(e.key, e.value))
	})
}

// table reads the values of a table. A small one is inside the value that describes it.
func (p *parser) table(name, text []byte) error {
	each := func(e element) error {
		if e.flags != 0 {
			return p.failed(fmt.Errorf("%s %s is not a value", shown(name), shown(e.key)))
		}
		return p.failed(p.visit(name, e.key, e.value))
	}
	if len(text) < bucketSize {
		return fmt.Errorf("table %s is too short", shown(name))
	}
	if root := order.Uint64(text); root != 0 {
		return p.tree(root, nil, nil, true, each)
	}
	if len(text) < bucketSize+headerSize {
		return fmt.Errorf("table %s is too short", shown(name))
	}
	inline := parsePage(text[bucketSize:])
	if inline.flags != leafPage || inline.overflow != 0 || inline.id != 0 {
		return fmt.Errorf("table %s has no leaf page", shown(name))
	}
	return p.leaf(inline, each)
}

// tree reads the pages below a page, whose keys are at least min and less than max, if these are not nil.
func (p *parser) tree(id uint64, min, max []byte, root bool, each func(element) error) error {
	g, err := p.readPage(id)
	if err != nil {
		return err
	}
	all, err := g.elements()
	if err != nil {
		return err
	}
	switch {
	case len(all) == 0 && (!root || g.flags != leafPage):
		return fmt.Errorf("page %d is empty", id)
	case len(all) > 0 && (min != nil && bytes.Compare(all[0].key, min) < 0 ||
		max != nil && bytes.Compare(all[len(all)-1].key, max) >= 0):
		return fmt.Errorf("page %d: the keys are not in order", id)
	case g.flags == leafPage:
		return p.leaf(g, each)
	case g.flags != branchPage:
		return fmt.Errorf("page %d has the type %#x", id, g.flags)
	}
	for i, e := range all {
		next := max
		if i+1 < len(all) {
			next = all[i+1].key
		}
		if err := p.failed(p.tree(e.child, e.key, next, false, each)); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) leaf(g page, each func(element) error) error {
	all, err := g.elements()
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// freelist checks that the list of free pages, if the file has one, has no page of the tree.
func (p *parser) freelist() error {
	if p.meta.freelist == noFreelist {
		return nil
	}
	g, err := p.readPage(p.meta.freelist)
	if err != nil {
		return err
	}
	ids, count := g.text[headerSize:], uint64(g.count)
	if g.count == 0xFFFF {
		ids, count = ids[8:], order.Uint64(ids)
	}
	if g.flags != freelistPage || count > uint64(len(ids)/8) {
		return fmt.Errorf("page %d is not a list of free pages", g.id)
	}
	for i := range count {
		id := order.Uint64(ids[8*i:])
		if id < metaPages || id >= p.meta.high || p.seen[id] {
			return fmt.Errorf("page %d is not free, but the list of free pages has it", id)
		}
		p.seen[id] = true
	}
	return nil
}

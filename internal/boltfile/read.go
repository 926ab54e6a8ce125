package boltfile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// errContents is the cause if the values are not those that the file describes.
var errContents = errors.New("the description of its values is damaged")

// reading is what a parser has found.
type reading struct {
	found contents
	meta  map[string][]byte
	err   error
}

func (r *reading) value(table, key, value []byte) {
	switch {
	case string(table) != Meta:
		r.found.add(sumOf(table, key, value))
	default:
		r.meta[string(key)] = append([]byte{}, value...)
		if string(key) != string(contentsKey) {
			r.found.add(sum(table, key, value))
		}
	}
}

// Summary describes the content of a file.
type Summary struct {
	contents
	// Meta has the values of the table meta.
	Meta map[string][]byte
}

// Read returns an error if an open file is damaged, and a *FormatError if another version of the program
// has written it. It reads all pages that are in use, and keeps one of them in memory.
func Read(file *os.File, opt Options) (Summary, error) {
	p, err := newParser(file)
	if err != nil {
		return Summary{}, err
	}
	if err := p.readMetas(); err != nil {
		return Summary{}, err
	}
	r := reading{meta: map[string][]byte{}}
	p.visit = func(table, key, value []byte) error {
		r.value(table, key, value)
		if string(table) != Meta && r.err == nil { // other formats may have no checksums
			_, r.err = Content(table, key, value)
		}
		return nil
	}
	if err := errors.Join(p.tables(), p.freelist()); err != nil {
		return Summary{}, err
	}
	r.found.tx = p.meta.tx
	return Summary{r.found, r.meta}, r.check(opt)
}

// check compares the values with their description.
func (r *reading) check(opt Options) error {
	format, err := parseFormat(r.meta[string(formatKey)])
	if err != nil {
		return err
	}
	text, described := r.meta[string(contentsKey)]
	switch {
	case format != opt.Format && described && r.withFormat(opt.Format) == string(text):
		return errors.New("its format is damaged")
	case format != opt.Format:
		return &FormatError{format, opt.Format}
	case !described:
		return errContents
	case r.err != nil:
		return r.err
	}
	want, ok := decodeContents(text)
	if !ok {
		return errContents
	}
	switch {
	case want.tx != r.found.tx:
		return fmt.Errorf("its values are those of transaction %d, and %d was the last one", want.tx, r.found.tx)
	case want.count != r.found.count:
		return fmt.Errorf("it has %d values, and %d were stored", r.found.count, want.count)
	case want.digest != r.found.digest:
		return errors.New("some of its values are older than the others")
	}
	return nil
}

// withFormat returns the description of the values if the format were that one.
func (r *reading) withFormat(format int) string {
	c := r.found
	c.cut(sum(metaTable, formatKey, r.meta[string(formatKey)]))
	c.add(sum(metaTable, formatKey, []byte(strconv.Itoa(format))))
	return string(c.encode())
}

// Value is the place of a value.
type Value struct{ Table, Key string }

// Values returns the values of a file without their checksums and without the table meta.
// Values that are damaged are left out, so it reads as much of a damaged file as possible.
func Values(file *os.File) map[Value][]byte {
	all := map[Value][]byte{}
	p, err := newParser(file)
	if err != nil || p.anyMeta() != nil {
		return all
	}
	p.skip = func(error) {}
	p.visit = func(table, key, value []byte) error {
		content, err := Content(table, key, value)
		if err == nil {
			all[Value{string(table), string(key)}] = append([]byte{}, content...)
		}
		return err
	}
	_ = p.tables() // what can be read is in all
	return all
}

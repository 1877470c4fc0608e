"""Handlers of XLA's FFI in C, compiled with the public header that jaxlib ships."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "xla/ffi/api/c_api.h"

static int is_question(XLA_FFI_CallFrame *f) {
  if (!f->extension_start || f->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)f->extension_start)->metadata;
  m->api_version.major_version = XLA_FFI_API_MAJOR;
  m->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static XLA_FFI_Error *error(XLA_FFI_CallFrame *f, const char *message) {
  XLA_FFI_Error_Create_Args a = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, message,
                                 XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return f->api->XLA_FFI_Error_Create(&a);
}

static void *attribute(XLA_FFI_Attrs *attrs, const char *name, XLA_FFI_AttrType type) {
  for (int64_t i = 0; i < attrs->size; i++)
    if (attrs->names[i]->len == strlen(name) && !memcmp(attrs->names[i]->ptr, name, strlen(name)))
      return attrs->types[i] == type ? attrs->attrs[i] : 0;
  return 0;
}

/* y = x * scale + sum(offsets) + device; scale: f32, offsets: array<i64>, label: string, inner: {flag: i1} */
XLA_FFI_Error *affine(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  if (f->stage != XLA_FFI_ExecutionStage_EXECUTE) return error(f, "wrong stage");
  if (f->args.size != 1 || f->rets.size != 1) return error(f, "wrong number of buffers");
  XLA_FFI_Buffer *x = f->args.args[0], *y = f->rets.rets[0];
  if (x->dtype != XLA_FFI_DataType_F32 || x->rank != 2 || x->dims[0] != 2 || x->dims[1] != 3)
    return error(f, "wrong shape");
  XLA_FFI_Scalar *scale = attribute(&f->attrs, "scale", XLA_FFI_AttrType_SCALAR);
  XLA_FFI_Array *offsets = attribute(&f->attrs, "offsets", XLA_FFI_AttrType_ARRAY);
  XLA_FFI_ByteSpan *label = attribute(&f->attrs, "label", XLA_FFI_AttrType_STRING);
  XLA_FFI_Attrs *inner = attribute(&f->attrs, "inner", XLA_FFI_AttrType_DICTIONARY);
  if (!scale || !offsets || !label || !inner) return error(f, "an attribute is missing");
  if (scale->dtype != XLA_FFI_DataType_F32 || offsets->dtype != XLA_FFI_DataType_S64) return error(f, "wrong type");
  if (label->len != 5 || memcmp(label->ptr, "hello", 5)) return error(f, "wrong label");
  XLA_FFI_Scalar *flag = attribute(inner, "flag", XLA_FFI_AttrType_SCALAR);
  if (!flag || flag->dtype != XLA_FFI_DataType_PRED || !*(char *)flag->value) return error(f, "wrong flag");
  XLA_FFI_DeviceOrdinal_Get_Args d = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, 0, f->ctx, -1};
  if (f->api->XLA_FFI_DeviceOrdinal_Get(&d)) return error(f, "no device");
  float sum = d.device_ordinal;
  for (size_t i = 0; i < offsets->size; i++) sum += ((int64_t *)offsets->data)[i];
  for (int i = 0; i < 6; i++) ((float *)y->data)[i] = ((float *)x->data)[i] * *(float *)scale->value + sum;
  return 0;
}

/* fails where the first element is negative */
XLA_FFI_Error *checked(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  XLA_FFI_Buffer *x = f->args.args[0], *y = f->rets.rets[0];
  if (*(float *)x->data < 0) return error(f, "a negative number");
  memcpy(y->data, x->data, 4 * sizeof(float));
  return 0;
}

/* counts its calls in a state that it makes when it is instantiated */
static XLA_FFI_TypeId counter_type;
static void delete_counter(void *state) { free(state); }

XLA_FFI_Error *make_counter(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  XLA_FFI_TypeInfo info = {XLA_FFI_TypeInfo_STRUCT_SIZE, 0, delete_counter};
  XLA_FFI_Type_Register_Args t = {XLA_FFI_Type_Register_Args_STRUCT_SIZE, 0, {"counter", 7}, &counter_type, &info};
  XLA_FFI_Error *e = f->api->XLA_FFI_Type_Register(&t);
  if (e) return e;
  XLA_FFI_State_Set_Args s = {XLA_FFI_State_Set_Args_STRUCT_SIZE, 0, f->ctx, f->stage, &counter_type, calloc(1, 8)};
  return f->api->XLA_FFI_State_Set(&s);
}

XLA_FFI_Error *count(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  XLA_FFI_State_Get_Args s = {XLA_FFI_State_Get_Args_STRUCT_SIZE, 0, f->ctx, XLA_FFI_ExecutionStage_INSTANTIATE,
                              &counter_type, 0};
  XLA_FFI_Error *e = f->api->XLA_FFI_State_Get(&s);
  if (e) return e;
  *(int32_t *)((XLA_FFI_Buffer *)f->rets.rets[0])->data = ++*(int32_t *)s.state;
  return 0;
}

/* in place: the operand is the result */
XLA_FFI_Error *add_one(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  XLA_FFI_Buffer *x = f->args.args[0], *y = f->rets.rets[0];
  if (x->data != y->data) return error(f, "not in place");
  for (int i = 0; i < 4; i++) ((float *)y->data)[i] += 1;
  return 0;
}

/* leaves the work to a thread and returns a future */
struct work { const XLA_FFI_Api *api; XLA_FFI_Future *future; float *x, *y; XLA_FFI_Error *error; };

static void *work(void *p) {
  struct work *w = p;
  usleep(20000);
  for (int i = 0; i < 4; i++) w->y[i] = 2 * w->x[i];
  if (w->error) {
    XLA_FFI_Future_SetError_Args a = {XLA_FFI_Future_SetError_Args_STRUCT_SIZE, 0, w->future, w->error};
    w->api->XLA_FFI_Future_SetError(&a);
  } else {
    XLA_FFI_Future_SetAvailable_Args a = {XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, 0, w->future};
    w->api->XLA_FFI_Future_SetAvailable(&a);
  }
  free(w);
  return 0;
}

XLA_FFI_Error *later(XLA_FFI_CallFrame *f) {
  if (is_question(f)) return 0;
  XLA_FFI_Future_Create_Args a = {XLA_FFI_Future_Create_Args_STRUCT_SIZE, 0, 0};
  XLA_FFI_Error *e = f->api->XLA_FFI_Future_Create(&a);
  if (e) return e;
  struct work *w = malloc(sizeof *w);
  w->api = f->api, w->future = a.future;
  w->x = ((XLA_FFI_Buffer *)f->args.args[0])->data, w->y = ((XLA_FFI_Buffer *)f->rets.rets[0])->data;
  w->error = w->x[0] < 0 ? error(f, "negative, found later") : 0;
  f->future = a.future;
  pthread_t thread;
  pthread_create(&thread, 0, work, w);
  pthread_detach(thread);
  return 0;
}

XLA_FFI_Error *of_the_future(XLA_FFI_CallFrame *f) {
  XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)f->extension_start)->metadata;
  m->api_version.major_version = 7, m->api_version.minor_version = 1;
  return 0;
}
"""


def build(folder: Path, text: str = SOURCE) -> Path:
    """The shared library; skips the test where there is no C compiler or no jaxlib."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    jaxlib = importlib.util.find_spec("jaxlib")
    if compiler is None or jaxlib is None or jaxlib.origin is None:
        pytest.skip("needs a C compiler and jaxlib's headers")
    headers = Path(jaxlib.origin).parent / "include"
    source, library = folder / "handlers.c", folder / "libhandlers.so"
    source.write_text(text)
    command = [compiler, "-shared", "-fPIC", "-O1", "-w", "-I", headers, "-o", library, source, "-lpthread"]
    subprocess.run(command, check=True)
    return library

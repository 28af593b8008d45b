//! The only module that names `rdma_sys`: the bindings that this backend uses.

pub(super) use rdma_sys::{
    ___ibv_query_port, __ibv_get_device_list, atomic_t, ibv_access_flags, ibv_ack_async_event,
    ibv_ack_cq_events, ibv_alloc_pd, ibv_async_event, ibv_atomic_cap, ibv_close_device,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp,
    ibv_device_attr, ibv_event_type, ibv_free_device_list, ibv_get_async_event, ibv_get_cq_event,
    ibv_get_device_name, ibv_modify_qp, ibv_mr, ibv_open_device, ibv_pd, ibv_poll_cq,
    ibv_port_attr, ibv_port_state, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_query_device, ibv_recv_wr,
    ibv_reg_mr_iova2, ibv_req_notify_cq, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc,
    ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode, rdma_accept, rdma_ack_cm_event, rdma_bind_addr,
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id,
    rdma_disconnect, rdma_establish, rdma_event_channel, rdma_get_cm_event, rdma_init_qp_attr,
    rdma_listen, rdma_port_space, rdma_reject, rdma_resolve_addr, rdma_resolve_route, rdma_t,
};
